// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Streams in shared memory: full rings, leaving, ends, deaths.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "base/process.h"
#include "base/sys.h"
#include "shm/segment.h"
#include "stream/looks.h"
#include "stream/octets.h"
#include "stream/stream_testing.h"
#include "stream/user_stream.h"

namespace ddpsock::engine {
namespace {

struct NoOperations final : OneSided {
  void wake() override {}
  void take_in() override {}
  int flush() override { return 0; }
};

int tcp_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, name, &value, &size), 0);
  return value;
}

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() { join(a, b); }
  static void join(End& from, End& to) {
    EXPECT_EQ(from.send(pattern(1)).count, 1);
    EXPECT_EQ(to.recv(1), pattern(1));
    EXPECT_STREQ(from.s->status().engine, "shm") << "without having sent or received since";
    EXPECT_EQ(from.send(pattern(1)).count, 1);
    EXPECT_EQ(to.recv(1), pattern(1));
    EXPECT_STREQ(from.s->status().engine, "shm") << from.s->status().memory;
    EXPECT_STREQ(to.s->status().engine, "shm") << to.s->status().memory;
  }
  static bool is_writable(int fd) {
    pollfd p{fd, POLLOUT, 0};
    return ::poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0;
  }
  static int bytes_unread(int fd) {
    int n = 0;
    ioctl(fd, FIONREAD, &n);
    return n;
  }
  static bool is_readable_within(int fd, int ms) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, ms) == 1 && (p.revents & POLLIN) != 0;
  }
  // What the kernel said to the last send() of the library. It may have room again at once for what
  // was under way to the peer, as on TCP.
  class LastSend {
   public:
    LastSend() {
      was_refused_ = false;
      base::sys.send = [](int fd, const void* from, size_t size, int flags) {
        const ssize_t n = ::send(fd, from, size, flags);
        was_refused_ = n < 0 && errno == EAGAIN;
        return n;
      };
    }
    ~LastSend() { base::sys.send = real_; }
    static bool was_refused() { return was_refused_; }

   private:
    static inline bool was_refused_ = false;
    const decltype(base::sys.send) real_ = base::sys.send;
  };
  // Sends until the kernel refuses. What was sent.
  static Buffer fill(End& end, uint32_t seed, const LastSend* last = nullptr) {
    std::mt19937 rng(seed);
    Buffer sent;
    for (;;) {
      const Buffer m = pattern(1 + rng() % 70'000, rng());
      const Io io = end.send(m, MSG_DONTWAIT);
      if (io.error == EAGAIN) break;
      EXPECT_EQ(io.error, 0) << strerror(io.error);
      if (io.count < static_cast<ssize_t>(m.size())) {
        EXPECT_TRUE(last == nullptr || last->was_refused() || !is_writable(end.fd))
            << "an edge follows a part, too";
      }
      sent.insert(sent.end(), m.begin(), m.begin() + io.count);
    }
    return sent;
  }
  static Buffer drain(End& end, size_t total, uint32_t seed) {
    std::mt19937 rng(seed);
    Buffer got;
    while (got.size() < total) {
      const Buffer part = end.recv(std::min<size_t>(1 + rng() % 90'000, total - got.size()));
      if (part.empty()) break;
      got.insert(got.end(), part.begin(), part.end());
      const bool has_payload = end.s->readable(end.fd, false).count > 0;
      // Where another thread writes the bell may still be under way.
      EXPECT_TRUE(!has_payload || is_readable_within(end.fd, 1000)) << "I1 at " << got.size();
    }
    return got;
  }

  // As a program that this one executes: with nothing mapped. Its exit status.
  template <typename F>
  int in_a_program(F use) {
    const pid_t child = fork();
    if (child == 0) {
      a.s = user_stream_engine().find(a.fd);
      use(*a.s);
      _exit(HasFailure() ? 1 : 0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status;
  }

  TcpPair tcp{20'000, 20'000, TcpPair::Sizes::kHosts};
  MemoryEnd a{tcp.client, Role::kInitiator};
  MemoryEnd b{tcp.server, Role::kResponder};
};

TEST_F(MemoryTest, AFullRingIsRefusedByTheKernelAndGoesOnInOrder) {
  const LastSend last;
  for (uint32_t seed = 1; seed < 10; ++seed) {
    Buffer sent = fill(a, seed, &last);
    EXPECT_GE(sent.size(), size_t{4} << 20) << "what TCP would have taken";
    EXPECT_TRUE(last.was_refused() || !is_writable(a.fd)) << "EAGAIN is the kernel's";
    Buffer got = drain(b, sent.size() / 4, seed);
    const Buffer more = fill(a, seed + 100, &last);
    sent.insert(sent.end(), more.begin(), more.end());
    const Buffer rest = drain(b, sent.size() - got.size(), seed);
    got.insert(got.end(), rest.begin(), rest.end());
    ASSERT_EQ(got, sent) << "seed " << seed;
    ASSERT_FALSE(kernel_says_readable(b.fd)) << "no filler is left";
    ASSERT_TRUE(is_writable(a.fd));
    const uint64_t fpdus = a.s->status().fpdus_sent;
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(a.send(pattern(100)).count, 100);
      ASSERT_EQ(b.recv(100), pattern(100));
    }
    ASSERT_EQ(a.s->status().fpdus_sent, fpdus) << "nothing travels as FPDUs any more";
  }
}

// Two programs that both send before they receive.
TEST_F(MemoryTest, BothEndsSendAMegabyteBeforeTheyReceive) {
  const Buffer m = pattern(1 << 20), n = pattern(1 << 20, 2);
  std::thread other([&] {
    EXPECT_EQ(b.send(n).count, static_cast<ssize_t>(n.size()));
    EXPECT_EQ(b.recv(m.size(), MSG_WAITALL), m);
  });
  EXPECT_EQ(a.send(m).count, static_cast<ssize_t>(m.size()));
  EXPECT_EQ(a.recv(n.size(), MSG_WAITALL), n);
  other.join();
}

TEST_F(MemoryTest, WhoPollsLetsTheBellLieUntilItIsSettled) {
  const auto expect_message = [this] {
    ASSERT_EQ(a.send(pattern(5)).count, 5);
    EXPECT_EQ(b.recv(100, MSG_DONTWAIT), pattern(5));
  };
  expect_message();
  EXPECT_FALSE(kernel_says_readable(b.fd));
  EXPECT_FALSE(b.s->may_have_stale_bell());
  b.s->note_poller(base::thread_id());
  for (int round = 0; round < 10; ++round) {
    expect_message();
    EXPECT_TRUE(b.s->may_have_stale_bell());
    EXPECT_EQ(bytes_unread(b.fd), 1) << "one octet for all messages";
  }
  b.s->settle(b.fd);
  EXPECT_FALSE(kernel_says_readable(b.fd));
  EXPECT_FALSE(b.s->may_have_stale_bell());
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  EXPECT_TRUE(kernel_says_readable(b.fd));
  b.s->note_poller(base::thread_id() + 1);
  EXPECT_EQ(b.recv(100, MSG_DONTWAIT), pattern(5));
  EXPECT_FALSE(kernel_says_readable(b.fd)) << "another thread polls";
}

TEST_F(MemoryTest, ASmallSendIsToldOfAKeptErrorFirst) {
  // No bell is owed from here on.
  ASSERT_EQ(b.send(pattern(5)).count, 5);
  a.s->note_poller(base::thread_id());
  EXPECT_EQ(a.recv(100, MSG_DONTWAIT), pattern(5));
  ASSERT_EQ(b.send(pattern(5)).count, 5);
  EXPECT_EQ(a.recv(100, MSG_DONTWAIT), pattern(5));
  b.s->keep_error(ECONNRESET);
  EXPECT_EQ(b.send(pattern(5)).error, ECONNRESET);
  EXPECT_EQ(b.send(pattern(5)).count, 5);
  EXPECT_EQ(a.recv(100, MSG_DONTWAIT), pattern(5));
}

// A call that returns less than it could says that there is no more.
TEST_F(MemoryTest, WhatLiesBehindTheMemoryIsReceivedWithIt) {
  b.s->note_poller(base::thread_id());
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  EXPECT_EQ(b.recv(100, MSG_DONTWAIT), pattern(5));
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  a.s->leave_memory(a.fd);
  ASSERT_EQ(a.send(pattern(7)).count, 7);
  while (bytes_unread(b.fd) < 7) usleep(1000);
  EXPECT_EQ(b.recv(100, MSG_DONTWAIT).size(), 12u);
}

TEST_F(MemoryTest, IsOpenUntilAnEndOrAnError) {
  EXPECT_TRUE(a.s->is_open_in_memory());
  EXPECT_TRUE(b.s->is_open_in_memory());
  b.s->keep_error(ECONNRESET);
  EXPECT_FALSE(b.s->is_open_in_memory());
  EXPECT_EQ(b.s->judge_error(0), ECONNRESET);
  EXPECT_TRUE(b.s->is_open_in_memory());
  EXPECT_EQ(b.s->shutdown(b.fd, SHUT_RD).error, 0);
  EXPECT_FALSE(b.s->is_open_in_memory());
  EXPECT_TRUE(a.s->is_open_in_memory()) << "TCP tells a peer nothing of that";
  EXPECT_EQ(a.s->shutdown(a.fd, SHUT_WR).error, 0);
  EXPECT_FALSE(a.s->is_open_in_memory());
}

TEST_F(MemoryTest, IsNotOpenOnceThePeerHasEnded) {
  EXPECT_EQ(a.s->shutdown(a.fd, SHUT_WR).error, 0);
  EXPECT_FALSE(b.s->is_open_in_memory());
}

TEST(MemoryStart, TheReplyIsNotTakenForABell) {
  TcpPair tcp{20'000, 20'000, TcpPair::Sizes::kHosts};
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  ASSERT_EQ(b.recv(1), pattern(1));
  ASSERT_EQ(b.send(pattern(100)).count, 100);
  a.s->settle(a.fd);
  EXPECT_TRUE(a.s->glance().has_bytes);
  EXPECT_EQ(a.recv(100), pattern(100));
}

// It would have been taken for the first octet of an FPDU.
TEST(MemoryStart, ABellStaysForBytesThatASleepersCallLeaves) {
  TcpPair tcp{20'000, 20'000, TcpPair::Sizes::kHosts};
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  ASSERT_EQ(b.recv(1), pattern(1));
  Sleeper reader([&] { EXPECT_EQ(b.recv(1), Buffer{pattern(3)[0]}); });
  reader.await_calm();
  ASSERT_EQ(a.send(pattern(3)).count, 3);
  reader.join();
  EXPECT_STREQ(b.s->status().engine, "shm");
  EXPECT_TRUE(kernel_says_readable(b.fd));
  EXPECT_EQ(b.recv(2).size(), 2U);
  EXPECT_FALSE(kernel_says_readable(b.fd));
}

// Of an end that has sent nothing when it begins to sleep.
TEST(MemoryStart, ABellStaysForBytesThatASleeperOfTheConnectedEndLeaves) {
  TcpPair tcp{20'000, 20'000, TcpPair::Sizes::kHosts};
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  ASSERT_EQ(b.send(pattern(1)).count, 1);
  ASSERT_EQ(a.recv(1), pattern(1));
  std::thread reader([&] { EXPECT_EQ(a.recv(1), Buffer{pattern(3)[0]}); });
  usleep(30'000);
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  ASSERT_EQ(b.recv(1), pattern(1));
  ASSERT_EQ(b.send(pattern(3)).count, 3);
  reader.join();
  EXPECT_STREQ(a.s->status().engine, "shm");
  EXPECT_TRUE(kernel_says_readable(a.fd));
  EXPECT_EQ(a.recv(2).size(), 2U);
  EXPECT_FALSE(kernel_says_readable(a.fd));
}

// Before the memory each FPDU costs the reader as much as the writer, or more.
TEST(MemoryStart, AWriterThatNeverWaitsGetsThere) {
  for (const size_t size : {64, 16'384}) {
    const TcpPair tcp;
    MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
    std::thread reader([&] {
      Buffer got(size);
      while (b.recv(got.data(), got.size()).count > 0) {
      }
    });
    const Buffer message = pattern(size);
    const Time give_up = base::now() + Duration::from_ms(20'000);
    for (uint64_t sent = 1; a.s->status().fpdus_sent + 1'000 > sent; ++sent) {
      ASSERT_EQ(a.send(message).count, std::ssize(message));
      if (base::now() > give_up) {
        ADD_FAILURE() << sent << " messages of " << size << " bytes are not in memory";
        break;
      }
    }
    a.s->shutdown(a.fd, SHUT_WR);
    reader.join();
  }
}

int tell_nothing(int, unsigned long, ...) {
  return -1;
}

// Many that do not read cost a thread no more time than one.
TEST(MemoryStart, AWriterHardlyWaitsForThoseThatDoNotRead) {
  struct Connection {
    TcpPair tcp;
    MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  };
  std::array<Connection, 8> connections;
  const Buffer message = pattern(1000);
  base::sys.ioctl = tell_nothing;
  for (Connection& c : connections) {
    for (int i = 0; i < 20; ++i) ASSERT_EQ(c.a.send(message).count, 1000);
    ASSERT_EQ(c.b.recv(10).size(), 10u) << "joins";
  }
  int pauses = 0;
  constexpr int kCalls = 4000;
  for (int i = 0; i < kCalls; ++i) {
    const Time start = base::now();
    connections[static_cast<size_t>(i) % connections.size()].a.send(message, MSG_DONTWAIT);
    if (base::now() - start >= Duration::from_us(20)) ++pauses;
  }
  base::sys.ioctl = ::ioctl;
  EXPECT_LT(pauses, kCalls / 4);
}

// A bell may be left to a reader that asks again and again, never kept from one that then sleeps.
TEST_F(MemoryTest, AReaderThatSpinsAndThenSleepsIsWoken) {
  uint8_t byte;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
    ASSERT_EQ(a.send(pattern(10)).count, 10);
    ASSERT_EQ(b.recv(10), pattern(10));
    const int unread = bytes_unread(b.fd);
    ASSERT_EQ(a.send(pattern(10)).count, 10);
    ASSERT_EQ(b.recv(10), pattern(10));
    ASSERT_EQ(bytes_unread(b.fd), unread) << "the bell was left where it was";
    ASSERT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
    ASSERT_FALSE(kernel_says_readable(b.fd));
    ASSERT_EQ(a.send(pattern(10)).count, 10);
    ASSERT_TRUE(kernel_says_readable(b.fd));
    ASSERT_TRUE(b.s->is_recv_ready(b.fd));
    ASSERT_EQ(b.recv(10), pattern(10));
    ASSERT_FALSE(kernel_says_readable(b.fd)) << "it has polled since";
  }
}

TEST_F(MemoryTest, AnEdgeFollowsEachRefusal) {
  const int ep = epoll_create1(0);
  epoll_event e{.events = EPOLLOUT | EPOLLET, .data = {}};
  ASSERT_EQ(epoll_ctl(ep, EPOLL_CTL_ADD, a.fd, &e), 0);
  ASSERT_EQ(epoll_wait(ep, &e, 1, 0), 1);
  for (uint32_t round = 0; round < 20; ++round) {
    const Buffer sent = fill(a, round);
    while (epoll_wait(ep, &e, 1, 0) == 1) continue;
    ASSERT_EQ(drain(b, sent.size(), round), sent);
    ASSERT_EQ(epoll_wait(ep, &e, 1, 5000), 1) << "round " << round;
  }
  close(ep);
}

TEST_F(MemoryTest, ABlockingWriterSleepsUntilThereIsRoom) {
  const Buffer m = pattern(9'000'000);
  std::thread reader([&] {
    usleep(30'000);
    EXPECT_EQ(drain(b, m.size(), 1), m);
  });
  EXPECT_EQ(a.send(m).count, static_cast<ssize_t>(m.size()));
  reader.join();
}

// What would be a SIGBUS if it were written to.
TEST_F(MemoryTest, WithoutMemoryForTheRingsTheirFirstPageServes) {
  EXPECT_EQ(a.send(pattern(3'100)).count, 3'100);
  EXPECT_EQ(b.recv(3'100, MSG_WAITALL), pattern(3'100));
  size_t large = 0;
  for (const auto& [begin, end] : mapped_segments()) {
    if (end - begin <= 8192) continue;
    ASSERT_EQ(mprotect(reinterpret_cast<void*>(begin + 12288), end - begin - 12288, PROT_READ), 0);
    ++large;
  }
  ASSERT_EQ(large, 2u);
  for (uint32_t i = 0; i < 5; ++i) {
    const Buffer m = pattern(300'000, i);
    std::thread reader([&] { EXPECT_EQ(drain(b, m.size(), i), m); });
    EXPECT_EQ(a.send(m).count, static_cast<ssize_t>(m.size()));
    reader.join();
    EXPECT_EQ(a.send(pattern(10, i)).count, 10);
    EXPECT_EQ(b.recv(10), pattern(10, i));
  }
}

// Not before there is no room, however little time it has.
TEST_F(MemoryTest, ABlockingWriterTimesOutAsTcpDoes) {
  for (const int us : {1'000, 50'000}) {
    TcpPair pair{20'000, 20'000, TcpPair::Sizes::kHosts};
    MemoryEnd x(pair.client, Role::kInitiator), y(pair.server, Role::kResponder);
    join(x, y);
    const timeval limit{0, us};
    setsockopt(x.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const Io io = x.send(pattern(9'000'000));
    EXPECT_GE(io.count, 4 << 20) << us;
    EXPECT_LT(io.count, 9'000'000) << us;
    EXPECT_FALSE(is_writable(x.fd)) << us;
    EXPECT_EQ(x.send(pattern(10)).error, EAGAIN) << us;
  }
}

// Non-blocking writer and reader with edge-triggered pollers of the kernel, sizes beyond the ring.
TEST_F(MemoryTest, EdgeTriggeredProgramsLoseNothing) {
  const Buffer all = pattern(30 << 20, 5);
  std::thread writer([&] {
    const int ep = epoll_create1(0);
    epoll_event e{.events = EPOLLOUT | EPOLLET, .data = {}};
    epoll_ctl(ep, EPOLL_CTL_ADD, a.fd, &e);
    std::mt19937 rng(1);
    for (size_t at = 0; at < all.size();) {
      const size_t n = std::min<size_t>(1 + rng() % 400'000, all.size() - at);
      const iovec v{const_cast<uint8_t*>(all.data()) + at, n};
      const Io io = a.s->send(a.fd, {&v, 1}, MSG_DONTWAIT);
      if (io.is_ok()) {
        at += static_cast<size_t>(io.count);
      } else if (epoll_wait(ep, &e, 1, 10'000) != 1) {
        ADD_FAILURE() << "no edge for the writer at " << at;
        break;
      }
    }
    close(ep);
  });
  const int ep = epoll_create1(0);
  epoll_event e{.events = EPOLLIN | EPOLLET, .data = {}};
  epoll_ctl(ep, EPOLL_CTL_ADD, b.fd, &e);
  std::mt19937 rng(2);
  Buffer got, room(300'000);
  while (got.size() < all.size()) {
    const Io io = b.recv(room.data(), 1 + rng() % room.size(), MSG_DONTWAIT);
    if (io.is_ok()) {
      got.insert(got.end(), room.begin(), room.begin() + io.count);
    } else {
      ASSERT_EQ(io.error, EAGAIN);
      ASSERT_EQ(epoll_wait(ep, &e, 1, 10'000), 1) << "no edge for the reader at " << got.size();
    }
  }
  writer.join();
  close(ep);
  EXPECT_EQ(got, all);
}

TEST_F(MemoryTest, LeavingTakesTheBytesAlongAndBothDirectionsGoOn) {
  for (const bool is_filled : {false, true}) {
    TcpPair pair{20'000, 20'000};
    MemoryEnd x(pair.client, Role::kInitiator), y(pair.server, Role::kResponder);
    join(x, y);
    Buffer sent = pattern(200'000);
    if (is_filled) {
      sent = fill(x, 3);
      const Buffer got = drain(y, 200'000, 1);
      ASSERT_EQ(got, Buffer(sent.begin(), sent.begin() + 200'000));
      sent.erase(sent.begin(), sent.begin() + 200'000);
      const Buffer more = fill(x, 4);
      sent.insert(sent.end(), more.begin(), more.end());
    } else {
      ASSERT_EQ(x.send(sent).count, 200'000);
    }
    y.s->leave_memory(y.fd);
    EXPECT_STREQ(y.s->status().engine, "user");
    EXPECT_TRUE(kernel_says_readable(y.fd));
    std::thread writer([&] { EXPECT_EQ(x.send(pattern(5000, 9)).count, 5000); });
    EXPECT_EQ(drain(y, sent.size(), 2), sent);
    EXPECT_EQ(y.recv(5000, MSG_WAITALL), pattern(5000, 9));
    writer.join();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(y.send(pattern(100, 7)).count, 100);
      EXPECT_EQ(x.recv(100), pattern(100, 7));
      EXPECT_EQ(x.send(pattern(100, 8)).count, 100);
      EXPECT_EQ(y.recv(100), pattern(100, 8));
    }
  }
}

TEST_F(MemoryTest, LeavingGivesTheProgramsLimitOfWhatIsUnsentBack) {
  const auto limit_of = [](int fd) { return tcp_option(fd, TCP_NOTSENT_LOWAT); };
  for (const bool is_set_in_memory : {false, true}) {
    TcpPair pair{20'000, 20'000};
    MemoryEnd x(pair.client, Role::kInitiator), y(pair.server, Role::kResponder);
    const int limit = 50'000;
    ASSERT_EQ(setsockopt(x.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof limit), 0);
    join(x, y);
    if (is_set_in_memory) {
      EXPECT_TRUE(x.s->set_kept_option(TCP_NOTSENT_LOWAT, 70'000));
    }
    const Buffer sent = fill(x, 3);
    EXPECT_EQ(limit_of(x.fd), 1);
    EXPECT_EQ(drain(y, sent.size(), 1), sent);
    x.s->leave_memory(x.fd);
    EXPECT_EQ(limit_of(x.fd), is_set_in_memory ? 70'000 : 50'000);
  }
}

// In the small ring, in both, and in what was taken along when the memory was left.
TEST_F(MemoryTest, ALookShowsWhatComesNextWhereverItLies) {
  for (const bool is_filled : {false, true})
    for (const bool is_left : {false, true}) {
      SCOPED_TRACE(is_filled * 10 + is_left);
      TcpPair pair{20'000, 20'000};
      MemoryEnd x(pair.client, Role::kInitiator), y(pair.server, Role::kResponder);
      join(x, y);
      Buffer sent = pattern(200'000);
      if (is_filled) {
        sent = fill(x, 3);
        ASSERT_EQ(drain(y, 200'000, 1), Buffer(sent.begin(), sent.begin() + 200'000));
        sent.erase(sent.begin(), sent.begin() + 200'000);
        const Buffer more = fill(x, 4);
        sent.insert(sent.end(), more.begin(), more.end());
      } else {
        ASSERT_EQ(x.send(sent).count, 200'000);
      }
      if (is_left) y.s->leave_memory(y.fd);
      std::mt19937 rng(5);
      for (size_t at = 0; at < sent.size();) {
        const size_t size = std::min<size_t>(1 + rng() % 300'000, sent.size() - at);
        const Buffer seen = y.recv(size, MSG_PEEK);
        ASSERT_FALSE(seen.empty());
        ASSERT_EQ(seen, Buffer(sent.begin() + static_cast<ptrdiff_t>(at),
                               sent.begin() + static_cast<ptrdiff_t>(at + seen.size())));
        at += y.recv(1 + rng() % seen.size()).size();
      }
      x.release();
      pair.close_client();
      EXPECT_TRUE(y.recv(1, MSG_PEEK).empty()) << "the end, past a bell that was not taken";
    }
}

// A short look is not late, however long it has waited.
TEST_F(MemoryTest, ALookThatWaitsRestsShortlyBetweenShortLooks) {
  ASSERT_EQ(a.send(pattern(100)).count, 100);
  const timeval limit{0, 100'000};
  setsockopt(b.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  static std::vector<int> rests;
  rests.clear();
  const auto real = base::sys.poll;
  base::sys.poll = [](pollfd* fds, nfds_t count, int ms) {
    if (count == 0) rests.push_back(ms);
    return ::poll(fds, count, ms);
  };
  EXPECT_EQ(b.recv(101, MSG_PEEK | MSG_WAITALL).size(), 100u);
  base::sys.poll = real;
  ASSERT_GE(rests.size(), 2u);
  const auto shortest = std::count(rests.begin(), rests.end(), PeekCall::kShortestRestMs);
  EXPECT_GE(2 * static_cast<size_t>(shortest), rests.size()) << "but where others had the CPU";
}

// Each look copies what it sees: of a peer that sends no more that must not take the CPU.
TEST(PeekCallTest, RestsLongerThanItLooks) {
  EXPECT_EQ(PeekCall::rest_ms(Duration{}), 1);
  EXPECT_EQ(PeekCall::rest_ms(Duration::from_us(60)), 1);
  EXPECT_EQ(PeekCall::rest_ms(Duration::from_us(500)), 8);
  EXPECT_EQ(PeekCall::rest_ms(Duration::from_ms(1)), 16);
  EXPECT_EQ(PeekCall::rest_ms(Duration::from_ms(10'000)), 16);
}

// With a part, a call polls before it reads: also what outlives the number that it began with.
TEST_F(MemoryTest, ACallGoesOnWithWhatOutlivesItsNumberHoweverOftenItSleeps) {
  static std::atomic<bool> has_polled;
  has_polled = false;
  // A bell of bytes that it has by now.
  const auto real = base::sys.poll;
  base::sys.poll = [](pollfd* fds, nfds_t count, int ms) {
    if (count == 0 || has_polled.exchange(true)) return ::poll(fds, count, ms);
    fds[0].revents = POLLIN;
    return 1;
  };
  Buffer got;
  std::thread reader([&] { got = b.recv(200, MSG_WAITALL); });
  usleep(20'000);
  b.s->outlive(b.fd);
  user_stream_engine().set_naming([](int, const Stream&) { return false; });
  const Buffer all = pattern(200);
  ASSERT_EQ(a.send(Buffer(all.begin(), all.begin() + 100)).count, 100);
  for (int i = 0; i < 5000 && !has_polled; ++i) usleep(1000);
  EXPECT_TRUE(has_polled);
  usleep(20'000);
  ASSERT_EQ(a.send(Buffer(all.begin() + 100, all.end())).count, 100);
  reader.join();
  user_stream_engine().set_naming(nullptr);
  base::sys.poll = real;
  EXPECT_EQ(got, all);
}

// And by its SO_RCVTIMEO, whatever the number is by then.
TEST_F(MemoryTest, ACallEndsByTheTimeoutOfWhatOutlivesItsNumber) {
  const timeval limit{0, 300'000};
  setsockopt(b.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const int kept = dup(b.fd);
  std::atomic<int64_t> ended_ns{0};
  Buffer got;
  const Time start = base::now();
  std::thread reader([&] {
    got = b.recv(200, MSG_WAITALL);
    ended_ns = base::now().ns;
  });
  usleep(20'000);
  b.s->outlive(b.fd);
  user_stream_engine().set_naming([](int, const Stream&) { return false; });
  TcpPair other;
  ASSERT_EQ(dup2(other.client, b.fd), b.fd);
  ASSERT_EQ(a.send(pattern(100)).count, 100);
  // Should it wait for ever.
  std::thread rescue([&] {
    for (int i = 0; i < 300 && ended_ns == 0; ++i) usleep(10'000);
    if (ended_ns == 0) a.send(pattern(100));
  });
  reader.join();
  rescue.join();
  user_stream_engine().set_naming(nullptr);
  ASSERT_EQ(dup2(kept, b.fd), b.fd);
  close(kept);
  EXPECT_EQ(got.size(), 100u);
  EXPECT_LT(Time{ended_ns} - start, Duration::from_ms(2000));
  EXPECT_GE(Time{ended_ns} - start, Duration::from_ms(250));
}

// The peer has left, and sends FPDUs behind what lies in memory.
TEST_F(MemoryTest, ALookSeesWhatLiesBehindTheMemory) {
  for (const bool is_left_too : {false, true}) {
    SCOPED_TRACE(is_left_too);
    TcpPair pair{20'000, 20'000};
    MemoryEnd x(pair.client, Role::kInitiator), y(pair.server, Role::kResponder);
    join(x, y);
    const Buffer all = pattern(800);
    ASSERT_EQ(x.send(Buffer(all.begin(), all.begin() + 300)).count, 300);
    x.s->leave_memory(x.fd);
    y.s->set_receive_low_water(800);
    EXPECT_FALSE(y.s->is_recv_ready(y.fd));
    EXPECT_EQ(y.s->readable(y.fd, false).count, 300);
    EXPECT_EQ(y.recv(2000, MSG_PEEK | MSG_DONTWAIT).size(), 300u);
    ASSERT_EQ(x.send(Buffer(all.begin() + 300, all.end())).count, 500);
    if (is_left_too) y.s->leave_memory(y.fd);
    EXPECT_TRUE(y.s->is_recv_ready(y.fd));
    EXPECT_EQ(y.s->readable(y.fd, false).count, 800);
    EXPECT_EQ(y.recv(200, MSG_PEEK), Buffer(all.begin(), all.begin() + 200));
    EXPECT_EQ(y.recv(2000, MSG_PEEK), all);
    EXPECT_EQ(y.recv(800, MSG_PEEK | MSG_WAITALL), all);
    y.s->set_receive_low_water(1);
    EXPECT_EQ(y.recv(100), Buffer(all.begin(), all.begin() + 100));
    EXPECT_EQ(y.recv(2000, MSG_PEEK), Buffer(all.begin() + 100, all.end()));
    EXPECT_EQ(y.s->readable(y.fd, false).count, 700);
    EXPECT_TRUE(kernel_says_readable(y.fd)) << "I1";
    EXPECT_EQ(y.recv(2000), Buffer(all.begin() + 100, all.end()));
    EXPECT_EQ(y.s->readable(y.fd, false).count, 0);
    EXPECT_FALSE(kernel_says_readable(y.fd));
  }
}

TEST_F(MemoryTest, WritingToAPeerThatHasClosedFails) {
  b.release();
  tcp.close_server();
  int errors = 0;
  for (int i = 0; i < 5 && errors == 0; ++i)
    if (a.send(pattern(10), MSG_NOSIGNAL).error == EPIPE) ++errors;
  EXPECT_EQ(errors, 1);
}

// Octets that were counted, and that its kernel dropped, never come.
TEST_F(MemoryTest, AnEndComesBehindWhatWasLeftByAPeerThatWasReset) {
  for (const int flags : {int{MSG_DONTWAIT}, 0}) {
    TcpPair pair{20'000, 20'000};
    MemoryEnd x(pair.client, Role::kInitiator), y(pair.server, Role::kResponder);
    join(x, y);
    const Buffer sent = fill(x, 1);
    const linger reset{1, 0};
    setsockopt(x.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    x.s->note_linger(true);
    x.release();
    pair.close_client();
    y.s->leave_memory(y.fd);
    Buffer got;
    while (got.size() < sent.size()) {
      const Buffer part = y.recv(sent.size() - got.size(), flags);
      ASSERT_FALSE(part.empty());
      got.insert(got.end(), part.begin(), part.end());
    }
    EXPECT_EQ(got, sent);
    uint8_t byte;
    EXPECT_EQ(y.recv(&byte, 1, flags).error, ECONNRESET) << "as TCP tells it";
    EXPECT_EQ(y.recv(&byte, 1, flags).count, 0);
  }
}

TEST_F(MemoryTest, WhatComesBehindAShutdownIsRefusedAsByTcp) {
  ASSERT_EQ(b.s->shutdown(b.fd, SHUT_RDWR).error, 0);
  ASSERT_EQ(a.send(pattern(9), MSG_NOSIGNAL).count, 9);
  pollfd p{b.fd, POLLIN, 0};
  ASSERT_EQ(::poll(&p, 1, 5000), 1);
  EXPECT_EQ(p.revents & ~b.s->untrue_at_end(), POLLIN | POLLERR | POLLHUP);
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1).error, ECONNRESET);
}

TEST_F(MemoryTest, BytesSentBeforeTheCloseArriveBeforeTheEnd) {
  EXPECT_EQ(a.send(pattern(100'000)).count, 100'000);
  a.release();
  tcp.close_client();
  EXPECT_EQ(b.recv(200'000, MSG_WAITALL), pattern(100'000));
  EXPECT_EQ(b.recv(1).size(), 0u);
}

TEST_F(MemoryTest, ClosingWithUnreadBytesResetsAsTcpDoes) {
  EXPECT_EQ(a.send(pattern(100)).count, 100);
  b.release();
  tcp.close_server();
  uint8_t byte;
  EXPECT_EQ(a.recv(&byte, 1).error, ECONNRESET);
}

// The writer asks the kernel, which says it once, and has a part to return.
TEST_F(MemoryTest, AResetThatAWriterHasMetIsToldByALookToo) {
  for (const size_t size : {1, 0}) {
    TcpPair pair{20'000, 20'000};
    MemoryEnd x(pair.client, Role::kInitiator), y(pair.server, Role::kResponder);
    join(x, y);
    ASSERT_EQ(y.send(pattern(1)).count, 1);
    ASSERT_EQ(x.recv(1), pattern(1));
    constexpr ssize_t kMuch = 9'000'000;
    ssize_t sent = 0;
    Sleeper writer([&] { sent = x.send(pattern(kMuch), MSG_NOSIGNAL).count; });
    writer.await_calm();
    const linger reset{1, 0};
    setsockopt(y.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    pair.close_server();  // as if it had been killed
    writer.join();
    EXPECT_GT(sent, 0);
    EXPECT_LT(sent, kMuch);
    uint8_t byte;
    EXPECT_EQ(x.recv(&byte, size, size == 0 ? 0 : MSG_PEEK).error, ECONNRESET) << size;
    EXPECT_EQ(x.recv(&byte, 1).count, 0) << "once";
  }
}

TEST_F(MemoryTest, AForkedChildHasItToo) {
  EXPECT_EQ(a.send(pattern(300)).count, 300);
  EXPECT_EQ(b.recv(100).size(), 100u);
  const pid_t child = fork();
  if (child == 0) {
    const Buffer m = pattern(300);
    const bool is_right = b.recv(100) == Buffer(m.begin() + 100, m.begin() + 200) &&
                          b.send(pattern(50, 2)).count == 50;
    b.release();
    _exit(is_right ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(b.recv(100).size(), 100u);
  EXPECT_EQ(a.recv(50), pattern(50, 2));
  EXPECT_STREQ(b.s->status().engine, "shm");
}

// As a program finds it that was executed while a thread was at work on the connection: nobody has
// left the memory, and it is not mapped here.
TEST_F(MemoryTest, WhatIsNotMappedIsNotTouched) {
  const Buffer m = pattern(100);
  uint8_t fpdu[64] = {};
  const Bytes bytes[] = {fpdu};
  EXPECT_EQ(b.send(m).count, 100);
  EXPECT_EQ(a.recv(50).size(), 50u);
  EXPECT_EQ(in_a_program([&](Stream& s) {
              EXPECT_EQ(s.return_to_plain(a.fd).state, PlainReturn::State::kRefused);
              EXPECT_EQ(a.send(m).error, ECONNRESET);
              EXPECT_EQ(a.recv(fpdu, 1).error, ECONNRESET);
            }),
            0);
  EXPECT_EQ(in_a_program([&](Stream& s) {
              NoOperations operations;
              EXPECT_TRUE(s.one_sided_way().begin(a.fd, operations));
              EXPECT_EQ(a.send(m).error, ECONNRESET);
              const auto sent = s.one_sided_way().send_fpdus(a.fd, bytes);
              EXPECT_EQ(sent.has_value() ? 0 : to_int(sent.error()), ECONNRESET);
              EXPECT_EQ(a.recv(fpdu, 1).error, ECONNRESET);
            }),
            0);
  EXPECT_EQ(bytes_unread(b.fd), 0) << "no FPDU lies among the octets";
}

// A signal handler starts a program in the middle of a send: octets are counted by then of which
// the kernel takes a part.
TEST_F(MemoryTest, LeavingInTheMiddleOfAnOwnSendLosesNothing) {
  ASSERT_TRUE(a.s->set_kept_option(TCP_NODELAY, 0));
  ASSERT_TRUE(a.s->set_kept_option(TCP_CORK, 1));
  static Stream* leaver;
  leaver = a.s;
  static const auto real = base::sys.send;
  base::sys.send = [](int fd, const void* p, size_t n, int flags) {
    if (n < kMostFiller) return ::send(fd, p, n, flags);
    base::sys.send = real;
    leaver->leave_memory(fd);
    return ::send(fd, p, 10, flags);
  };
  Buffer sent = fill(a, 1);
  base::sys.send = real;
  EXPECT_STREQ(a.s->status().memory, memory_text(MemoryState::kLeft));
  EXPECT_EQ(tcp_option(a.fd, TCP_NODELAY), 0);
  EXPECT_EQ(tcp_option(a.fd, TCP_CORK), 1);
  ASSERT_FALSE(a.s->set_kept_option(TCP_CORK, 0)) << "it is the kernel's again";
  const int zero = 0;
  setsockopt(a.fd, IPPROTO_TCP, TCP_CORK, &zero, sizeof zero);
  Buffer got = drain(b, sent.size() - 1, 1);
  const Buffer more = fill(a, 2);
  sent.insert(sent.end(), more.begin(), more.end());
  const Buffer rest = drain(b, sent.size() - got.size(), 2);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, sent);
}

// The other thread has published all it sends, and does not look at its lane again.
TEST_F(MemoryTest, LeavingBehindALastPublicationOfAnotherThreadIsWhole) {
  ASSERT_TRUE(a.s->set_kept_option(TCP_NODELAY, 0));
  uint8_t byte;
  ASSERT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN) << "the next is rung for";
  static Stream* leaver;
  static std::thread other;
  static std::vector<shm::Segment*> segments;
  segments.clear();
  leaver = a.s;
  for (const auto& [begin, end] : mapped_segments())
    if (end - begin > 8192) segments.push_back(reinterpret_cast<shm::Segment*>(begin));
  ASSERT_EQ(segments.size(), 2u) << "the two ends have the same";
  static const auto real = base::sys.send;
  base::sys.send = [](int fd, const void* p, size_t n, int flags) {
    base::sys.send = real;
    other = std::thread([fd] { leaver->leave_memory(fd); });
    const auto& tail = segments[0]->lane_from(shm::End::kConnected).writer.tail;
    while ((tail.load() & shm::kClosedBit) == 0) sched_yield();
    // It finds the call at work.
    usleep(10'000);
    return ::send(fd, p, n, flags);
  };
  EXPECT_EQ(a.send(pattern(10)).count, 10);
  base::sys.send = real;
  ASSERT_TRUE(other.joinable());
  other.join();
  EXPECT_STREQ(a.s->status().memory, memory_text(MemoryState::kLeft));
  EXPECT_EQ(tcp_option(a.fd, TCP_NODELAY), 0);
  EXPECT_EQ(in_a_program([&](Stream&) { EXPECT_EQ(a.send(pattern(100)).count, 100); }), 0);
  EXPECT_EQ(b.recv(110, MSG_WAITALL).size(), 110u);
}

// It leaves all in order, and the program is executed next.
TEST_F(MemoryTest, WhatARelativeWasKilledInIsLeft) {
  const pid_t child = fork();
  if (child == 0) {
    a.send(pattern(8 << 20));
    _exit(0);
  }
  const auto is_full = [&] { return b.s->readable(b.fd, false).count >= ssize_t{4} << 20; };
  while (!is_full()) usleep(100);
  const auto is_asleep = [&] {
    std::ifstream in("/proc/" + std::to_string(child) + "/syscall");
    std::string number;
    return in >> number && number == std::to_string(SYS_futex);
  };
  while (!is_asleep()) usleep(100);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  a.s->leave_memory(a.fd);
  EXPECT_EQ(in_a_program([&](Stream&) { EXPECT_EQ(a.send(pattern(100)).count, 100); }), 0);
}

TEST(MemoryStart, LeavingWhileAnotherThreadIsAboutToSendLosesNothing) {
  TcpPair tcp{20'000, 20'000, TcpPair::Sizes::kHosts};
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  ASSERT_EQ(b.recv(1), pattern(1));
  ASSERT_EQ(b.send(pattern(100)).count, 100);
  uint8_t byte;
  ASSERT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN) << "looks into memory from now on";
  static Stream* leaver;
  static bool has_left;
  leaver = a.s;
  has_left = false;
  // The call has the lease, and learns just now that the peer has joined.
  static const auto real = base::sys.getsockopt;
  base::sys.getsockopt = [](int fd, int level, int name, void* value, socklen_t* size) {
    if (level == SOL_SOCKET && name == SO_LINGER) {
      base::sys.getsockopt = real;
      std::thread([fd] { leaver->leave_memory(fd); }).join();
      has_left = true;
    }
    return ::getsockopt(fd, level, name, value, size);
  };
  EXPECT_EQ(a.send(pattern(200)).count, 200);
  base::sys.getsockopt = real;
  ASSERT_TRUE(has_left) << "the call has not asked what it asks before it sends in memory";
  EXPECT_STREQ(a.s->status().memory, memory_text(MemoryState::kLeft));
  EXPECT_EQ(b.recv(200, MSG_WAITALL), pattern(200));
  EXPECT_EQ(a.recv(100, MSG_WAITALL), pattern(100));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(a.send(pattern(10)).count, 10);
    EXPECT_EQ(b.recv(10), pattern(10));
    EXPECT_EQ(b.send(pattern(10)).count, 10);
    EXPECT_EQ(a.recv(10), pattern(10));
  }
}

// Held by two processes before it began: neither would have what the other maps.
TEST(MemoryStart, AStreamSharedBeforeItsBeginStaysOnTheWire) {
  TcpPair tcp;
  MemoryEnd a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    const bool is_right = read(go[0], &byte, 1) == 1 && b.recv(10) == pattern(10) &&
                          b.send(pattern(10, 2)).count == 10;
    _exit(is_right ? 0 : 1);
  }
  EXPECT_EQ(a.send(pattern(10)).count, 10);
  EXPECT_EQ(write(go[1], "x", 1), 1);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(a.recv(10), pattern(10, 2));
  EXPECT_STREQ(a.s->status().engine, "user");
  close(go[0]);
  close(go[1]);
}

// Descriptors of memory that are open in this process, the last of them.
struct MemoryDescriptors {
  int count = 0, last = -1;
};
MemoryDescriptors memory_descriptors() {
  MemoryDescriptors open;
  for (int fd = 3; fd < 4096; ++fd) {
    char name[64] = "";
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(path.c_str(), name, sizeof name - 1) <= 0 || !strstr(name, "ddpsock-stream"))
      continue;
    ++open.count;
    open.last = fd;
  }
  return open;
}

// As most connections are that a program chooses no engine for: shared memory where it is worth it.
struct LaterEnd : End {
  LaterEnd(int fd_to_use, Role role)
      : End(fd_to_use, {.role = role, .may_share_memory = true, .may_share_later = true}) {}
};

// After as many short connections as it takes.
class MemoryLater : public testing::Test {
 protected:
  struct Both {
    TcpPair tcp{100'000, 20'000};
    LaterEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
    void talk() {
      EXPECT_EQ(a.send(pattern(10, 1)).count, 10);
      EXPECT_EQ(b.recv(100), pattern(10, 1));
      EXPECT_EQ(b.send(pattern(20, 2)).count, 20);
      EXPECT_EQ(a.recv(100), pattern(20, 2));
    }
    bool is_shared() const {
      return strcmp(a.s->status().engine, "shm") == 0 && strcmp(b.s->status().engine, "shm") == 0;
    }
    void live_long() {
      const Buffer much = pattern(100'000);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(a.send(much).count, 100'000);
        EXPECT_EQ(b.recv(much.size(), MSG_WAITALL), much);
      }
    }
  };
  MemoryLater() {
    Both().live_long();
    for (int i = 0; i < 8; ++i) {
      Both both;
      both.talk();
      EXPECT_TRUE(both.is_shared()) << "connection " << i;
    }
  }
  static void live_shortly() {
    for (int i = 0; i < 8; ++i) Both().talk();
  }
};

TEST_F(MemoryLater, OneThatStaysShortDoesNotEnter) {
  Both both;
  const size_t files = open_files();
  for (int i = 0; i < 2; ++i) both.talk();
  EXPECT_STREQ(both.a.s->status().engine, "user");
  EXPECT_EQ(open_files(), files);
  EXPECT_TRUE(mapped_segments().empty());
}

TEST_F(MemoryLater, OneThatGoesOnEnters) {
  Both both;
  for (int i = 0; i < 4; ++i) both.talk();
  EXPECT_TRUE(both.is_shared());
  EXPECT_EQ(memory_descriptors().count, 0);
  const uint64_t fpdus = both.a.s->status().fpdus_sent + both.b.s->status().fpdus_sent;
  for (int i = 0; i < 3; ++i) both.talk();
  EXPECT_EQ(both.a.s->status().fpdus_sent + both.b.s->status().fpdus_sent, fpdus);
}

// Nor while a thread sleeps in front of the wire.
TEST_F(MemoryLater, ABellStaysForBytesThatASleepersCallLeaves) {
  Both both;
  both.talk();
  both.talk();
  Sleeper reader([&] { EXPECT_EQ(both.a.recv(1), Buffer{pattern(3)[0]}); });
  reader.await_calm();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(both.a.send(pattern(10)).count, 10);
    ASSERT_EQ(both.b.recv(10), pattern(10));
  }
  ASSERT_EQ(both.b.send(pattern(3)).count, 3);
  reader.join();
  EXPECT_TRUE(both.is_shared());
  EXPECT_TRUE(kernel_says_readable(both.a.fd));
  EXPECT_EQ(both.a.recv(2).size(), 2U);
  EXPECT_FALSE(kernel_says_readable(both.a.fd));
}

TEST_F(MemoryLater, ALongLifeMakesTheNextEnterAtOnce) {
  Both().live_long();
  Both both;
  both.talk();
  EXPECT_TRUE(both.is_shared());
}

TEST_F(MemoryLater, NotWhereAnotherProcessHoldsIt) {
  Both both;
  for (int i = 0; i < 2; ++i) both.talk();
  int end[2];
  ASSERT_EQ(pipe(end), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(end[1]);
    _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
  }
  for (int i = 0; i < 4; ++i) both.talk();
  EXPECT_STREQ(both.a.s->status().memory, memory_text(MemoryState::kShared));
  close(end[0]);
  close(end[1]);
  waitpid(child, nullptr, 0);
  for (int i = 0; i < 2; ++i) both.talk();
}

TEST_F(MemoryLater, NotOnceItHasLeft) {
  Both both;
  both.talk();
  both.a.s->leave_memory(both.a.fd);
  for (int i = 0; i < 4; ++i) both.talk();
  EXPECT_STREQ(both.a.s->status().engine, "user");
  EXPECT_EQ(memory_descriptors().count, 0);
}

TEST_F(MemoryLater, LeavingWhileItIsOfferedOrJoinedLosesNothing) {
  for (const bool is_client : {true, false})
    for (int talks = 0; talks < 5; ++talks) {
      Both both;
      for (int i = 0; i < talks; ++i) both.talk();
      EXPECT_EQ(both.a.send(pattern(10, 3)).count, 10);
      LaterEnd& leaving = is_client ? both.a : both.b;
      leaving.s->leave_memory(leaving.fd);
      EXPECT_EQ(both.b.recv(10), pattern(10, 3)) << is_client << talks;
      for (int i = 0; i < 4; ++i) both.talk();
      EXPECT_FALSE(both.is_shared());
      if (is_client) {
        EXPECT_EQ(memory_descriptors().count, 0) << talks;
      }
    }
}

int bytes_unacknowledged(int fd) {
  int n = 0;
  ioctl(fd, SIOCOUTQ, &n);
  return n;
}

// Whatever lies unread, half-read and on its way when it enters (I1, I9): each byte once and in its
// place, and the kernel readable while there are any.
TEST_F(MemoryLater, EntersInTheMiddleOfWhateverIsUnderWay) {
  int entered = 0;
  for (uint32_t seed = 1; seed < 400; ++seed) {
    std::mt19937 rng(seed);
    live_shortly();
    Both both;
    struct Way {
      LaterEnd &from, &to;
      Buffer sent{}, got{};
    } ways[] = {{both.a, both.b}, {both.b, both.a}};
    for (int step = 0; step < 60; ++step) {
      Way& way = ways[rng() % 2];
      if (rng() % 2 == 0) {
        if (way.sent.size() - way.got.size() > 30'000) continue;  // than the kernel surely has
        const Buffer m = pattern(1 + rng() % (rng() % 8 == 0 ? 20'000 : 200), rng());
        const Io io = way.from.send(m, MSG_DONTWAIT);
        if (io.is_ok())
          way.sent.insert(way.sent.end(), m.begin(), m.begin() + io.count);
        else
          ASSERT_EQ(io.error, EAGAIN) << "seed " << seed;
        continue;
      }
      Buffer part(1 + rng() % (rng() % 4 == 0 ? 90'000 : 150));
      const bool is_look = rng() % 4 == 0;
      // Else TCP holds something back until it hears that the window has opened.
      const bool is_all_there = bytes_unacknowledged(way.from.fd) == 0;
      const Io io = way.to.recv(part.data(), part.size(), MSG_DONTWAIT | (is_look ? MSG_PEEK : 0));
      if (!io.is_ok()) {
        ASSERT_EQ(io.error, EAGAIN) << "seed " << seed;
        if (!is_all_there) continue;
        ASSERT_EQ(way.got.size(), way.sent.size()) << "seed " << seed << " step " << step;
        continue;
      }
      ASSERT_LE(way.got.size() + static_cast<size_t>(io.count), way.sent.size());
      ASSERT_TRUE(std::equal(part.begin(), part.begin() + io.count,
                             way.sent.begin() + static_cast<ssize_t>(way.got.size())))
          << "seed " << seed << " step " << step;
      if (is_look) continue;
      way.got.insert(way.got.end(), part.begin(), part.begin() + io.count);
      ASSERT_TRUE(way.got.size() == way.sent.size() || kernel_says_readable(way.to.fd))
          << "I1, seed " << seed << " step " << step;
    }
    for (Way& way : ways)
      while (way.got.size() < way.sent.size()) {
        const Buffer part = way.to.recv(way.sent.size() - way.got.size());
        ASSERT_FALSE(part.empty()) << "seed " << seed;
        way.got.insert(way.got.end(), part.begin(), part.end());
      }
    for (Way& way : ways) ASSERT_EQ(way.got, way.sent) << "seed " << seed;
    entered += both.is_shared() ? 1 : 0;
  }
  EXPECT_GT(entered, 100);
}

// Its peer's pollers and sends go by that.
TEST(MemoryStart, AnEndFromBeforeItIsKnown) {
  for (const bool is_client : {true, false}) {
    TcpPair tcp{20'000, 20'000, TcpPair::Sizes::kHosts};
    MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
    MemoryEnd &ending = is_client ? a : b, &other = is_client ? b : a;
    if (is_client) {
      ASSERT_EQ(a.send(pattern(1)).count, 1);
    }
    ASSERT_EQ(ending.s->shutdown(ending.fd, SHUT_WR).error, 0);
    if (is_client) {
      ASSERT_EQ(b.recv(1), pattern(1));
    }
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(other.send(pattern(1)).count, 1);
      ASSERT_EQ(ending.recv(1), pattern(1));
    }
    EXPECT_STREQ(ending.s->status().engine, "shm");
    EXPECT_TRUE(other.s->glance().may_have_ended) << is_client;
  }
}

TEST(MemoryStart, AnEndOfWhoHasNotNoticedThatItIsJoined) {
  TcpPair tcp{20'000, 20'000, TcpPair::Sizes::kHosts};
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  ASSERT_EQ(b.recv(1), pattern(1));
  a.release();
  tcp.close_client();
  ASSERT_EQ(b.send(pattern(64), MSG_NOSIGNAL).count, 64);
  pollfd p{b.fd, POLLIN, 0};
  while (::poll(&p, 1, 5000) == 1 && (p.revents & POLLHUP) == 0) continue;
  EXPECT_EQ(b.s->untrue_at_end(), 0) << "it has sent in vain";
}

TEST(MemoryStart, NotWantedByOneEnd) {
  for (const bool is_client : {true, false}) {
    TcpPair tcp{100'000, 20'000};
    End a(tcp.client, Role::kInitiator, Peer::kProved, false, true, is_client),
        b(tcp.server, Role::kResponder, Peer::kProved, false, true, !is_client);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(a.send(pattern(10)).count, 10);
      EXPECT_EQ(b.recv(10), pattern(10));
      EXPECT_EQ(b.send(pattern(10)).count, 10);
      EXPECT_EQ(a.recv(10), pattern(10));
    }
    EXPECT_STREQ(a.s->status().engine, "user");
    EXPECT_STREQ(b.s->status().engine, "user");
    EXPECT_EQ(memory_descriptors().count, 0) << "an offer in vain is withdrawn";
  }
}

TEST(MemoryStart, AnOfferInVainIsWithdrawnOnceNobodySends) {
  TcpPair tcp{20'000, 20'000, TcpPair::Sizes::kHosts};
  MemoryEnd a(tcp.client, Role::kInitiator);
  End b(tcp.server, Role::kResponder);
  const Buffer m = pattern(5'000'000);
  std::thread sender([&] { EXPECT_EQ(a.send(m).count, static_cast<ssize_t>(m.size())); });
  for (pollfd full{a.fd, POLLOUT, 0}; ::poll(&full, 1, 0) == 1;) usleep(100);
  EXPECT_EQ(b.recv(1).size(), 1u);
  EXPECT_EQ(b.send(pattern(1)).count, 1);
  EXPECT_EQ(a.recv(1), pattern(1)) << "the answer, while another thread sends";
  EXPECT_EQ(b.recv(m.size() - 1, MSG_WAITALL).size(), m.size() - 1);
  sender.join();
  EXPECT_EQ(b.send(pattern(1)).count, 1);
  EXPECT_EQ(a.recv(1), pattern(1));
  EXPECT_EQ(memory_descriptors().count, 0);
}

// How much of what lies in the kernel is copied for a look, in this test.
struct Looked {
  Looked() {
    octets = 0;
    base::sys.recv = [](int fd, void* to, size_t size, int flags) {
      const ssize_t n = ::recv(fd, to, size, flags);
      if ((flags & MSG_PEEK) != 0 && n > 0) octets += static_cast<size_t>(n);
      return n;
    };
  }
  ~Looked() { base::sys.recv = real_; }
  static inline size_t octets;

 private:
  const decltype(base::sys.recv) real_ = base::sys.recv;
};

TEST(MemoryStart, WhatComesInPiecesBehindAnOfferInVainIsCountedOnce) {
  constexpr size_t kPiece = 8192, kWhole = 512 << 10;
  TcpPair tcp{4 << 20, 4 << 20};
  MemoryEnd a(tcp.client, Role::kInitiator);
  End b(tcp.server, Role::kResponder);
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  ASSERT_EQ(b.recv(1), pattern(1));
  ASSERT_EQ(b.send(pattern(kWhole)).count, static_cast<ssize_t>(kWhole));
  while (a.s->readable(a.fd, false).count < static_cast<ssize_t>(kWhole)) usleep(100);
  const Looked looked;
  std::string steps;
  for (size_t left = kWhole; left > 0; left -= kPiece) {
    const size_t before = looked.octets;
    ASSERT_EQ(a.s->readable(a.fd, true).count, static_cast<ssize_t>(left));
    steps += std::to_string(left) + ": looked at " + std::to_string(looked.octets - before) +
             " of " + std::to_string(bytes_queued(a.fd)) + "\n";
    ASSERT_EQ(a.recv(kPiece).size(), kPiece);
  }
  EXPECT_LT(looked.octets, 2 * kWhole) << a.s->status().memory << "\n" << steps;
}

TEST(MemoryStart, AnOfferTakesADescriptorUntilTheAnswer) {
  TcpPair tcp;
  MemoryEnd a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  EXPECT_EQ(memory_descriptors().count, 1);
  ASSERT_EQ(b.recv(1), pattern(1));
  ASSERT_EQ(b.send(pattern(1)).count, 1);
  ASSERT_EQ(a.recv(1), pattern(1));
  EXPECT_EQ(memory_descriptors().count, 0);
  EXPECT_STREQ(a.s->status().engine, "shm");
}

TEST(MemoryStart, AnOfferLeftBeforeItsAnswerTakesNoDescriptor) {
  TcpPair tcp;
  MemoryEnd a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  EXPECT_EQ(memory_descriptors().count, 1);
  a.s->leave_memory(a.fd);
  EXPECT_EQ(memory_descriptors().count, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(b.recv(1), pattern(1));
    EXPECT_EQ(b.send(pattern(1)).count, 1);
    EXPECT_EQ(a.recv(1), pattern(1));
    EXPECT_EQ(a.send(pattern(1)).count, 1);
  }
  EXPECT_STREQ(a.s->status().engine, "user");
  EXPECT_STREQ(b.s->status().engine, "user");
}

TEST(MemoryStart, LeftBeforeItHasMovedItGivesTheProgramsOptionsBack) {
  for (const bool is_client : {true, false}) {
    TcpPair tcp{100'000, 20'000};
    const int zero = 0;
    for (const int fd : {tcp.client, tcp.server})
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &zero, sizeof zero);
    MemoryEnd a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
    ASSERT_EQ(a.send(pattern(1)).count, 1);
    EXPECT_EQ(b.recv(1), pattern(1));
    End& leaver = is_client ? a : b;
    leaver.s->leave_memory(leaver.fd);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(b.send(pattern(1)).count, 1);
      EXPECT_EQ(a.recv(1), pattern(1));
      EXPECT_EQ(a.send(pattern(1)).count, 1);
      EXPECT_EQ(b.recv(1), pattern(1));
    }
    for (const End* end : {&a, &b}) {
      EXPECT_EQ(tcp_option(end->fd, TCP_NODELAY), 0);
      EXPECT_STREQ(end->s->status().engine, "user");
    }
  }
}

// Whoever is at work on a send of FPDUs is not waited for, and has what bells need.
TEST(MemoryStart, LeftWhileFpdusAreSentItGivesTheProgramsOptionsBack) {
  enum class Next { kSend, kPassOn, kOneSided };
  for (const Next next : {Next::kSend, Next::kPassOn, Next::kOneSided}) {
    TcpPair tcp{100'000, 20'000};
    const int zero = 0, limit = 50'000;
    setsockopt(tcp.server, IPPROTO_TCP, TCP_NODELAY, &zero, sizeof zero);
    MemoryEnd a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(a.send(pattern(1)).count, 1);
    EXPECT_EQ(b.recv(1), pattern(1));
    EXPECT_TRUE(b.s->set_kept_option(TCP_NOTSENT_LOWAT, limit));
    NoOperations operations;
    static Stream* leaver;
    static OneSided* begun;
    static int left_in;
    leaver = b.s;
    begun = next == Next::kOneSided ? &operations : nullptr;
    left_in = -1;
    static const auto real = base::sys.send;
    base::sys.send = [](int fd, const void* p, size_t n, int flags) {
      if ((flags & MSG_MORE) != 0) return ::send(fd, p, n, flags);  // the start-up frame
      base::sys.send = real;
      left_in = fd;
      std::thread([fd] {
        begun != nullptr ? void(leaver->one_sided_way().begin(fd, *begun))
                         : leaver->leave_memory(fd);
      }).join();
      return ::send(fd, p, n, flags);
    };
    EXPECT_EQ(b.send(pattern(1)).count, 1);
    base::sys.send = real;
    ASSERT_EQ(left_in, b.fd);
    EXPECT_STREQ(b.s->status().engine, "user");
    int nodelay = -1;
    EXPECT_TRUE(b.s->get_kept_option(TCP_NODELAY, nodelay));
    EXPECT_EQ(nodelay, 0) << "as the program has set it, whatever the kernel has";
    const pid_t executed = fork();
    if (executed == 0) {
      Stream* found = user_stream_engine().find(b.fd);
      const bool is_kept = found->get_kept_option(TCP_NODELAY, nodelay) && nodelay == 0;
      _exit(is_kept && !found->set_kept_option(TCP_NODELAY, 0) ? 0 : 1);
    }
    int status = 1;
    waitpid(executed, &status, 0);
    EXPECT_EQ(status, 0) << "it gives nothing back, and so tells the kernel";
    if (next == Next::kPassOn) {
      b.s->leave_memory(b.fd);
    } else {
      EXPECT_EQ(b.send(pattern(1)).count, 1);
    }
    EXPECT_FALSE(b.s->get_kept_option(TCP_NODELAY, nodelay));
    EXPECT_EQ(tcp_option(b.fd, TCP_NODELAY), 0);
    EXPECT_EQ(tcp_option(b.fd, TCP_NOTSENT_LOWAT), limit);
    b.s->one_sided_way().end();
  }
}

TEST(MemoryStart, WhoLeavesWhileAnotherThreadJoinsHasLeft) {
  TcpPair tcp;
  MemoryEnd a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  static Stream* leaver;
  leaver = b.s;
  static const auto real = base::sys.getsockopt;
  base::sys.getsockopt = [](int fd, int level, int name, void* value, socklen_t* size) {
    if (level == SOL_SOCKET && name == SO_LINGER) {
      base::sys.getsockopt = real;
      std::thread([fd] { leaver->leave_memory(fd); }).join();
    }
    return ::getsockopt(fd, level, name, value, size);
  };
  EXPECT_EQ(b.recv(1), pattern(1));
  base::sys.getsockopt = real;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(b.send(pattern(1)).count, 1);
    EXPECT_EQ(a.recv(1), pattern(1));
    EXPECT_EQ(a.send(pattern(1)).count, 1);
    EXPECT_EQ(b.recv(1), pattern(1));
  }
  EXPECT_STREQ(b.s->status().engine, "user");
}

TEST(MemoryStart, TheDescriptorTheProgramClosedIsNotClosedAgain) {
  TcpPair tcp;
  MemoryEnd a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  EXPECT_EQ(a.send(pattern(1)).count, 1);
  const int memory = memory_descriptors().last;
  ASSERT_GT(memory, 0);
  const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(dup2(other, memory), memory);
  EXPECT_EQ(b.recv(1), pattern(1));
  EXPECT_EQ(b.send(pattern(1)).count, 1);
  EXPECT_EQ(a.recv(1), pattern(1));
  EXPECT_STREQ(b.s->status().engine, "user");
  a.release();
  EXPECT_GE(fcntl(memory, F_GETFD), 0);
  close(memory);
  close(other);
}

// A process is killed at a random instruction while it sends, and in half of the cases also
// receives. What it had counted as sent arrives, the end comes cleanly, and nothing is left behind.
// (If it dies with bytes unread, the kernel resets the connection and may drop what lay in the
// victim's send queue, with shared memory as without: then order and content are left to check.)
class Killed : public testing::Test {
 protected:
  struct Shared {
    std::atomic<uint64_t> sent;  // bytes of pattern() that the victim's calls have returned
  };
  static uint8_t byte_at(uint64_t position) {
    return static_cast<uint8_t>(position * 0x9e3779b97f4a7c15 >> 56);
  }

  [[noreturn]] static void live_until_killed(int fd, Role role, uint32_t seed, Shared& shared) {
    MemoryEnd end(fd, role);
    std::mt19937 rng(seed);
    Buffer bytes(400'000);
    fcntl(fd, F_SETFL, seed % 2 == 0 ? O_NONBLOCK : 0);
    for (uint64_t at = 0;;) {
      const size_t n = 1 + rng() % (1u << rng() % 19);
      for (size_t i = 0; i < n; ++i) bytes[i] = byte_at(at + i);
      const iovec v{bytes.data(), n};
      const Io io = end.s->send(fd, {&v, 1}, MSG_NOSIGNAL);
      if (io.is_ok()) {
        at += static_cast<uint64_t>(io.count);
        shared.sent.store(at);
      }
      static_cast<void>(end.recv(bytes.data(), bytes.size(), MSG_DONTWAIT));
    }
  }

  struct Survived {
    uint64_t bytes;
    int error;
  };
  // Reads to the end, and perhaps writes now and then.
  static Survived survive(int fd, Role role, uint32_t seed, bool is_writing) {
    MemoryEnd end(fd, role);
    std::mt19937 rng(seed);
    Buffer bytes(100'000);
    uint64_t got = 0;
    for (;;) {
      if (is_writing && rng() % 4 == 0)
        end.send(pattern(1 + rng() % 30'000), MSG_NOSIGNAL | MSG_DONTWAIT);
      const Io io = end.recv(bytes.data(), 1 + rng() % bytes.size());
      if (io.count <= 0) {
        EXPECT_TRUE(io.is_ok() || io.error == ECONNRESET) << strerror(io.error);
        return {got, io.error};
      }
      for (ssize_t i = 0; i < io.count; ++i)
        if (bytes[static_cast<size_t>(i)] != byte_at(got + static_cast<uint64_t>(i))) {
          ADD_FAILURE() << "a wrong byte at " << got + static_cast<uint64_t>(i);
          return {got, 0};
        }
      got += static_cast<uint64_t>(io.count);
    }
  }
};

// It never read, and the program that fills its ring does not sleep.
TEST_F(Killed, AWriterThatDoesNotWaitIsTold) {
  TcpPair tcp;
  const pid_t victim = fork();
  if (victim == 0) {
    tcp.close_client();
    MemoryEnd end(tcp.server, Role::kResponder);
    for (;;) {
      if (end.recv(1).size() != 1 || end.send(pattern(1)).count != 1) _exit(1);
    }
  }
  tcp.close_server();
  MemoryEnd a(tcp.client, Role::kInitiator);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a.send(pattern(1)).count, 1);
    ASSERT_EQ(a.recv(1), pattern(1));
  }
  ASSERT_STREQ(a.s->status().engine, "shm");
  kill(victim, SIGSTOP);
  while (a.send(pattern(70'000), MSG_DONTWAIT).is_ok()) continue;
  kill(victim, SIGKILL);
  ASSERT_EQ(waitpid(victim, nullptr, 0), victim);
  pollfd gone{a.fd, 0, 0};
  ASSERT_EQ(::poll(&gone, 1, 10'000), 1);
  int error = EAGAIN;
  for (int i = 0; i < 3 && error == EAGAIN; ++i)
    error = a.send(pattern(1), MSG_DONTWAIT | MSG_NOSIGNAL).error;
  EXPECT_TRUE(error == ECONNRESET || error == EPIPE) << strerror(error);
}

TEST_F(Killed, AtRandomInstructions) {
  const char* wanted = getenv("DDPSOCK_KILLS");
  const int kills = wanted != nullptr ? atoi(wanted) : 200;
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  const unsigned base = static_cast<unsigned>(getpid());
  size_t files = 0;
  for (int i = 0; i < kills && !HasFailure(); ++i) {
    if (i == 10) files = open_files();
    const uint32_t seed = base + static_cast<uint32_t>(i);
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    const bool is_client_victim = rng() % 2 == 0;
    TcpPair tcp{100'000, 20'000};
    shared->sent = 0;
    const pid_t victim = fork();
    if (victim == 0) {
      is_client_victim ? tcp.close_server() : tcp.close_client();
      live_until_killed(is_client_victim ? tcp.client : tcp.server,
                        is_client_victim ? Role::kInitiator : Role::kResponder, seed, *shared);
    }
    is_client_victim ? tcp.close_client() : tcp.close_server();
    std::thread killer([victim, lives_us = rng() % 4000] {
      usleep(static_cast<useconds_t>(lives_us));
      kill(victim, SIGKILL);
    });
    const bool is_writing = rng() % 2 == 0;
    const Survived survived =
        survive(is_client_victim ? tcp.server : tcp.client,
                is_client_victim ? Role::kResponder : Role::kInitiator, seed, is_writing);
    killer.join();
    waitpid(victim, nullptr, 0);
    if (!is_writing) {
      EXPECT_EQ(survived.error, 0) << "an end, not a reset";
      EXPECT_GE(survived.bytes, shared->sent.load()) << "bytes counted as sent are lost";
    }
  }
  EXPECT_EQ(open_files(), files);
  EXPECT_TRUE(mapped_segments().empty());
  munmap(shared, sizeof(Shared));
}

}  // namespace
}  // namespace ddpsock::engine
