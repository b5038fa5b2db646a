// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The stream engine on real TCP sockets, watched through the kernel's own poll() while no call is
// running.
#include "stream/user_stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/sys.h"
#include "base/wake.h"
#include "rdmap/terminate.h"
#include "stream/chunk.h"
#include "stream/hello.h"
#include "stream/stream_testing.h"
#include "stream/wire_testing.h"

namespace ddpsock::engine {
namespace {

struct Kind {
  const char* name;
  bool crc, memory;
  // Bytes are exchanged first, so that both ends are in shared memory when the test begins.
  bool is_joined = false;
};

class UserStreamTest : public testing::TestWithParam<Kind> {
 protected:
  UserStreamTest() {
    if (!GetParam().is_joined) return;
    EXPECT_EQ(a.send(pattern(1)).count, 1);
    EXPECT_EQ(b.recv(1), pattern(1));
    EXPECT_EQ(b.send(pattern(2)).count, 2);
    EXPECT_EQ(a.recv(2), pattern(2));
    EXPECT_EQ(a.send(pattern(3)).count, 3);
    EXPECT_EQ(b.recv(3), pattern(3));
    EXPECT_STREQ(a.s->status().engine, "shm") << a.s->status().memory;
    EXPECT_STREQ(b.s->status().engine, "shm") << b.s->status().memory;
    EXPECT_FALSE(kernel_says_readable(a.fd));
    EXPECT_FALSE(kernel_says_readable(b.fd));
  }
  bool crc() const { return GetParam().crc; }
  TcpPair tcp;
  End a{tcp.client, Role::kInitiator, Peer::kProved, false, crc(), GetParam().memory};
  End b{tcp.server, Role::kResponder, Peer::kProved, false, crc(), GetParam().memory};
};
INSTANTIATE_TEST_SUITE_P(Kinds, UserStreamTest,
                         testing::Values(Kind{"crc", true, false},
                                         Kind{"without_crc", false, false},
                                         Kind{"memory", true, true},
                                         Kind{"in_memory", true, true, true},
                                         Kind{"in_memory_without_crc", false, true, true}),
                         [](const auto& p) { return p.param.name; });

// A peer whose host has vanished: what the kernel says of it then stands for a reset, in the calls
// of this process.
class FarPeer {
 public:
  FarPeer() {
    base::sys.recv = [](int fd, void* to, size_t n, int flags) {
      return renamed(::recv(fd, to, n, flags));
    };
    base::sys.recvmsg = [](int fd, msghdr* m, int flags) {
      return renamed(::recvmsg(fd, m, flags));
    };
    base::sys.send = [](int fd, const void* from, size_t n, int flags) {
      return renamed(::send(fd, from, n, flags));
    };
    base::sys.sendmsg = [](int fd, const msghdr* m, int flags) {
      return renamed(::sendmsg(fd, m, flags));
    };
  }
  ~FarPeer() { base::sys = real_; }

 private:
  static ssize_t renamed(ssize_t n) {
    if (n < 0 && errno == ECONNRESET) errno = EHOSTUNREACH;
    return n;
  }
  const base::SysCalls real_ = base::sys;
};

TEST_P(UserStreamTest, OneThreadWritesAndReadsBothWays) {
  const Buffer hello = pattern(100);
  EXPECT_EQ(a.send(hello).count, 100);
  EXPECT_EQ(b.recv(4096), hello);
  EXPECT_EQ(b.send(hello).count, 100);
  EXPECT_EQ(a.recv(4096), hello);
  EXPECT_EQ(a.s->status().state, StreamState::kOpen);
  EXPECT_EQ(b.s->status().state, StreamState::kOpen);
  EXPECT_EQ(b.s->status().has_crc, crc());
  EXPECT_TRUE(b.s->status().is_peer_ddpsock);
}

TEST_P(UserStreamTest, ASenderThatNeverReceivesLearnsWhatWasAgreed) {
  EXPECT_EQ(a.send(pattern(10)).count, 10);
  EXPECT_EQ(b.recv(10), pattern(10));
  EXPECT_EQ(a.send(pattern(10, 2)).count, 10);
  EXPECT_EQ(b.recv(10), pattern(10, 2));
  EXPECT_EQ(a.s->status().has_crc, crc());
}

TEST_P(UserStreamTest, ServerSpeaksFirst) {
  const Buffer banner = pattern(37);
  EXPECT_EQ(b.send(banner).count, 37);
  EXPECT_EQ(a.recv(100), banner);
  EXPECT_EQ(a.send(banner).count, 37);
  EXPECT_EQ(b.recv(100), banner);
}

TEST_P(UserStreamTest, EverySizeArrivesInOneRead) {
  for (size_t n = 1; n < 300; ++n) {
    const Buffer m = pattern(n, static_cast<uint32_t>(n));
    ASSERT_EQ(a.send(m).count, static_cast<ssize_t>(n));
    ASSERT_EQ(b.recv(n), m) << n;
    ASSERT_FALSE(kernel_says_readable(b.fd)) << n;
    ASSERT_EQ(a.send(m).count, static_cast<ssize_t>(n));
    ASSERT_EQ(b.recv(10'000), m) << n;
    ASSERT_FALSE(kernel_says_readable(b.fd)) << n;
  }
}

TEST_P(UserStreamTest, OneByteAtATimeOfALargeChunk) {
  const Buffer m = pattern(65'536);
  ASSERT_EQ(a.send(m).count, 65'536);
  for (size_t i = 0; i < m.size(); ++i) {
    ASSERT_TRUE(kernel_says_readable(b.fd)) << "I1 at byte " << i;
    ASSERT_EQ(b.recv(1), Buffer{m[i]}) << i;
  }
  EXPECT_FALSE(kernel_says_readable(b.fd));
}

// I1 and I3 under random writes and reads. What is deliverable is asked of the engine, for TCP
// itself may still be moving bytes between the sockets.
TEST_P(UserStreamTest, KernelTellsTheTruthUnderRandomSizes) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 rng(seed);
    const auto size = [&](uint32_t most) { return 1 + rng() % (1u << rng() % (most + 1)); };
    Buffer sent, got;
    for (int step = 0; step < 300; ++step) {
      if (sent.size() - got.size() < 150'000 && rng() % 2 == 0) {
        const Buffer m = pattern(size(17), rng());
        const Io io = a.send(m, MSG_DONTWAIT);
        if (io.is_ok()) sent.insert(sent.end(), m.begin(), m.begin() + io.count);
      } else {
        const size_t room = size(17);
        const auto deliverable = static_cast<size_t>(b.s->readable(b.fd, false).count);
        Buffer m(room, 0xa5);
        const Io io = b.recv(m.data(), room, MSG_DONTWAIT);
        if (io.is_ok()) {
          got.insert(got.end(), m.begin(), m.begin() + io.count);
        } else {
          ASSERT_EQ(io.error, EAGAIN);
        }
        ASSERT_GE(io.is_ok() ? static_cast<size_t>(io.count) : 0, std::min(room, deliverable))
            << "I3: seed " << seed << " step " << step;
      }
      const bool has_payload = b.s->readable(b.fd, false).count > 0;
      const bool is_readable = kernel_says_readable(b.fd);
      ASSERT_TRUE(is_readable || !has_payload) << "I1: seed " << seed << " step " << step;
      if (is_readable && sent.size() == got.size()) {
        // A bell, left to a reader that has asked in vain many times in a row; and only once.
        ASSERT_TRUE(GetParam().memory) << "seed " << seed << " step " << step;
        uint8_t byte;
        ASSERT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
        ASSERT_FALSE(kernel_says_readable(b.fd)) << "seed " << seed << " step " << step;
      }
    }
    while (got.size() < sent.size()) {
      const Buffer m = b.recv(1 << 20);
      ASSERT_FALSE(m.empty());
      got.insert(got.end(), m.begin(), m.end());
    }
    ASSERT_EQ(got, sent) << "seed " << seed;
    if (kernel_says_readable(b.fd)) {
      // As above: reads that find what they want do not say that it polls now.
      ASSERT_TRUE(GetParam().memory);
      uint8_t byte;
      ASSERT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
    }
    ASSERT_FALSE(kernel_says_readable(b.fd));
  }
}

TEST_P(UserStreamTest, PeekLooksAndLeaves) {
  // Within TCP's first window, 64 KB: what it holds back is not queued.
  for (const size_t n : {1u, 50u, 5000u, 61'440u, 62'000u}) {
    const Buffer m = pattern(n), more = pattern(10, 9);
    ASSERT_EQ(a.send(m).count, static_cast<ssize_t>(n));
    ASSERT_EQ(a.send(more).count, 10);
    Buffer all = m;
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(b.s->readable(b.fd, false).count, static_cast<ssize_t>(n + 10));
    EXPECT_EQ(b.recv(1, MSG_PEEK), Buffer{m[0]});
    EXPECT_EQ(b.recv(200'000, MSG_PEEK), all);
    EXPECT_EQ(b.recv(1), Buffer{all[0]});
    all.erase(all.begin());
    EXPECT_EQ(b.recv(200'000, MSG_PEEK), all);
    EXPECT_EQ(b.s->readable(b.fd, false).count, static_cast<ssize_t>(all.size()));
    EXPECT_TRUE(kernel_says_readable(b.fd));
    EXPECT_EQ(b.recv(200'000), all);
    EXPECT_FALSE(kernel_says_readable(b.fd));
  }
}

TEST_P(UserStreamTest, WaitAllWaitsForAll) {
  const Buffer m = pattern(200'000);
  std::thread writer([&] {
    for (size_t at = 0; at < m.size(); at += 1000) {
      const Buffer part(m.begin() + static_cast<ptrdiff_t>(at),
                        m.begin() + static_cast<ptrdiff_t>(at + 1000));
      EXPECT_EQ(a.send(part).count, 1000);
      if (at % 50'000 == 0) usleep(1000);
    }
  });
  EXPECT_EQ(b.recv(m.size(), MSG_WAITALL), m);
  writer.join();
}

TEST_P(UserStreamTest, MegabytesBothWaysAtOnce) {
  const Buffer m = pattern(8 << 20);
  const auto pump_out = [&](End& e) {
    for (size_t at = 0; at < m.size(); at += 1 << 20) {
      const Buffer part(m.begin() + static_cast<ptrdiff_t>(at),
                        m.begin() + static_cast<ptrdiff_t>(at + (1 << 20)));
      EXPECT_EQ(e.send(part).count, 1 << 20);
    }
  };
  const auto pump_in = [&](End& e, size_t room) {
    Buffer got;
    while (got.size() < m.size()) {
      const Buffer part = e.recv(room);
      ASSERT_FALSE(part.empty());
      got.insert(got.end(), part.begin(), part.end());
    }
    EXPECT_EQ(got, m);
  };
  std::thread t1([&] { pump_out(a); }), t2([&] { pump_out(b); }), t3([&] { pump_in(a, 100'000); });
  pump_in(b, 1 << 20);
  t1.join();
  t2.join();
  t3.join();
}

TEST_P(UserStreamTest, HalfCloseDeliversEverythingThenTheEnd) {
  EXPECT_EQ(a.send(pattern(5000)).count, 5000);
  EXPECT_EQ(a.s->shutdown(a.fd, SHUT_WR).error, 0);
  EXPECT_EQ(b.recv(3000).size(), 3000u);
  EXPECT_EQ(b.recv(3000).size(), 2000u);
  EXPECT_EQ(b.recv(1).size(), 0u);
  EXPECT_EQ(b.recv(1).size(), 0u);
  EXPECT_EQ(b.send(pattern(10)).count, 10);
  EXPECT_EQ(a.recv(10), pattern(10));
  EXPECT_EQ(a.send(pattern(1), MSG_NOSIGNAL).error, EPIPE);
}

TEST_P(UserStreamTest, SilentCloseIsAnEnd) {
  ::shutdown(a.fd, SHUT_WR);
  EXPECT_EQ(b.recv(10).size(), 0u);
}

TEST_P(UserStreamTest, GatherAndScatterLists) {
  Buffer x = pattern(10, 1), y = pattern(20'000, 2), z = pattern(7, 3);
  const iovec out[] = {
      {x.data(), x.size()}, {nullptr, 0}, {y.data(), y.size()}, {z.data(), z.size()}};
  ASSERT_EQ(a.s->send(a.fd, out, 0).count, 20'017);
  Buffer p(3), q(15'000), r(10'000, 0xa5);
  const iovec in[] = {{p.data(), p.size()}, {q.data(), q.size()}, {r.data(), r.size()}};
  ASSERT_EQ(b.s->recv(b.fd, in, 0).count, 20'017);
  Buffer sent = x, got = p;
  sent.insert(sent.end(), y.begin(), y.end());
  sent.insert(sent.end(), z.begin(), z.end());
  got.insert(got.end(), q.begin(), q.end());
  got.insert(got.end(), r.begin(), r.begin() + 5014);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(r[5014], 0xa5);
}

// Parent and child share one connection: sequence numbers and leftovers are one.
TEST_P(UserStreamTest, ForkedProcessesShareTheStream) {
  const Buffer m = pattern(3000);
  EXPECT_EQ(a.send(m).count, 3000);
  EXPECT_EQ(b.recv(1000).size(), 1000u);
  const pid_t child = fork();
  if (child == 0) {
    const bool ok = b.recv(1000) == Buffer(m.begin() + 1000, m.begin() + 2000) &&
                    b.send(pattern(5, 5)).count == 5;
    b.s->release(b.fd);
    _exit(ok ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(b.recv(1000), Buffer(m.begin() + 2000, m.end()));
  EXPECT_EQ(b.send(pattern(6, 6)).count, 6);
  EXPECT_EQ(a.recv(5), pattern(5, 5));
  EXPECT_EQ(a.recv(6), pattern(6, 6));
}

// A stream in a process that the table of holders has no room for is not taken from under it.
TEST(UserStreamFamily, LargerThanTheTableOfHolders) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator);
  auto b = std::make_unique<End>(tcp.server, Role::kResponder);
  EXPECT_EQ(a.send(pattern(3000)).count, 3000);
  EXPECT_EQ(b->recv(1000).size(), 1000u);
  std::vector<pid_t> others;
  const auto end_others = [&] {
    for (const pid_t pid : others) kill(pid, SIGKILL);
    for (const pid_t pid : others) waitpid(pid, nullptr, 0);
  };
  for (uint32_t i = 0; i < HolderSet::kMax; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      for (;;) pause();
    }
    ASSERT_GT(pid, 0);
    others.push_back(pid);
  }
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t last = fork();
  if (last == 0) {
    char byte;
    const bool is_told = read(go[0], &byte, 1) == 1;
    const Buffer all = pattern(3000);
    _exit(is_told && b->recv(5000) == Buffer(all.begin() + 1000, all.end()) ? 0 : 1);
  }
  end_others();
  b.reset();
  // The next fork finds no place, and looks which of the others are dead.
  const pid_t next = fork();
  if (next == 0) _exit(0);
  waitpid(next, nullptr, 0);
  // Records come round in rotation: after so many, a free one would have been another's.
  for (int i = 0; i < 3000; ++i) {
    TcpPair other;
    End c(other.client, Role::kInitiator);
    EXPECT_EQ(c.send(pattern(10)).count, 10);
  }
  EXPECT_EQ(write(go[1], "x", 1), 1);
  int status = 1;
  ASSERT_EQ(waitpid(last, &status, 0), last);
  EXPECT_EQ(status, 0);
  close(go[0]);
  close(go[1]);
}

TEST_P(UserStreamTest, ABlockedReaderWakesWhenTheSocketIsShutDown) {
  std::thread t([&] {
    usleep(20'000);
    b.s->shutdown(b.fd, SHUT_RD);
  });
  EXPECT_EQ(b.recv(10).size(), 0u);
  t.join();
}

TEST_P(UserStreamTest, NonBlockingReaderBesideASleepingOneIsRefused) {
  std::thread sleeper([&] { EXPECT_EQ(b.recv(10), pattern(10)); });
  usleep(20'000);
  uint8_t x;
  EXPECT_EQ(b.recv(&x, 1, MSG_DONTWAIT).error, EAGAIN);
  EXPECT_EQ(a.send(pattern(10)).count, 10);
  sleeper.join();
}

// I4: with any send buffer, what is counted as sent is in complete FPDUs in the kernel.
TEST(UserStreamSend, NeverLeavesAPartOfAnFpduBehind) {
  for (const int sndbuf : {1, 8'000, 40'000, 300'000, 0}) {
    for (uint32_t seed = 1; seed < 6; ++seed) {
      TcpPair tcp(sndbuf, 3000);
      End a(tcp.client, Role::kInitiator);
      std::mt19937 rng(seed);
      Buffer sent;
      for (;;) {
        const Buffer m = pattern(1 + rng() % 70'000, rng());
        const Io io = a.send(m, MSG_DONTWAIT);
        if (io.error == EAGAIN) break;
        ASSERT_EQ(io.error, 0) << strerror(io.error);
        sent.insert(sent.end(), m.begin(), m.begin() + io.count);
        if (io.count < static_cast<ssize_t>(m.size())) break;
      }
      ASSERT_FALSE(sent.empty());
      // The program is killed here: the kernel has the rest.
      ::shutdown(tcp.client, SHUT_WR);
      End b(tcp.server, Role::kResponder);
      Buffer got;
      for (;;) {
        const Buffer part = b.recv(50'000);
        if (part.empty()) break;
        got.insert(got.end(), part.begin(), part.end());
      }
      ASSERT_EQ(got, sent) << "SO_SNDBUF " << sndbuf << " seed " << seed;
      ASSERT_EQ(b.s->status().failure, nullptr);
    }
  }
}

// Memory pressure: the kernel calls the socket writable and refuses. TCP's blocking send would
// wait.
TEST(UserStreamSend, ABlockingCallOutlastsRefusals) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  EXPECT_EQ(a.send(pattern(1)).count, 1);
  static int refusals;
  refusals = 5;
  const auto real_send = base::sys.send;
  base::sys.send = [](int fd, const void* data, size_t size, int flags) -> ssize_t {
    if (refusals-- <= 0) return ::send(fd, data, size, flags);
    errno = EAGAIN;
    return -1;
  };
  EXPECT_EQ(a.send(pattern(100)).count, 100);
  refusals = 1;
  EXPECT_EQ(a.send(pattern(100), MSG_DONTWAIT).error, EAGAIN);
  base::sys.send = real_send;
  EXPECT_EQ(b.recv(1), pattern(1));
  EXPECT_EQ(b.recv(100), pattern(100));
}

TEST(UserStreamSend, AnEdgeComesAfterARefusal) {
  TcpPair tcp(20'000, 10'000);
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  const int ep = epoll_create1(0);
  epoll_event e{.events = EPOLLOUT | EPOLLET, .data = {}};
  ASSERT_EQ(epoll_ctl(ep, EPOLL_CTL_ADD, a.fd, &e), 0);
  ASSERT_EQ(epoll_wait(ep, &e, 1, 0), 1);
  size_t sent = 0, got = 0;
  for (int round = 0; round < 20; ++round) {
    for (;;) {
      const Io io = a.send(pattern(3000), MSG_DONTWAIT);
      if (io.error == EAGAIN) break;
      ASSERT_GT(io.count, 0);
      sent += static_cast<size_t>(io.count);
    }
    while (epoll_wait(ep, &e, 1, 0) == 1) continue;
    while (got < sent) got += b.recv(4096).size();
    ASSERT_EQ(epoll_wait(ep, &e, 1, 5000), 1) << "no EPOLLOUT edge in round " << round;
  }
  close(ep);
}

TEST(UserStreamSend, BlockingWriterFinishesAgainstASlowReader) {
  TcpPair tcp(10'000, 5'000);
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  const Buffer m = pattern(500'000);
  std::thread reader([&] {
    Buffer got;
    while (got.size() < m.size()) {
      const Buffer part = b.recv(7'777);
      if (part.empty()) break;
      got.insert(got.end(), part.begin(), part.end());
    }
    EXPECT_EQ(got, m);
  });
  EXPECT_EQ(a.send(m).count, 500'000);
  reader.join();
}

// The other end is the test itself, byte by byte.
class RawPeer : public testing::Test {
 protected:
  TcpPair tcp;
  End b{tcp.server, Role::kResponder};

  void put(const Buffer& bytes) { engine::put(tcp.client, bytes); }
  void reset() {
    const linger now{1, 0};
    setsockopt(tcp.client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    tcp.close_client();
  }
  int recv_error() {
    uint8_t x[1000];
    const Io io = b.recv(x, sizeof x);
    EXPECT_EQ(io.count, -1);
    return io.error;
  }
  // What the engine sent after its start-up frame.
  Buffer answer() {
    Buffer all(4096);
    const ssize_t n = ::recv(tcp.client, all.data(), all.size(), MSG_WAITALL);
    all.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return all;
  }
  std::string terminate_text() {
    const Buffer all = answer();
    if (all.size() < 60) return "(none)";
    const size_t at = MPA_STARTUP_HEADER_SIZE + base::load_be16(&all[MPA_PD_LENGTH_OFFSET]);
    const auto t =
        rdmap::decode_terminate(Bytes(all).subspan(at + kChunkHeader), rdmap::Phase::kEstablished);
    return t ? rdmap::to_string(t->terminate.code) : "(undecodable)";
  }
};

TEST_F(RawPeer, EveryTwoPieceSegmentationOfAChunk) {
  put(request());
  for (const size_t n : {0u, 1u, 2u, 3u, 5u, 100u}) {
    static uint32_t msn = 1;
    const Buffer payload = pattern(n);
    const size_t size = chunk_size(static_cast<uint32_t>(n));
    for (size_t cut = 1; cut < size; ++cut) {
      const Buffer f = chunk(payload, msn++);
      put(Buffer(f.begin(), f.begin() + static_cast<ptrdiff_t>(cut)));
      uint8_t x[200];
      ASSERT_EQ(b.recv(x, sizeof x, MSG_DONTWAIT).error, EAGAIN) << n << " cut " << cut;
      ASSERT_FALSE(kernel_says_readable(b.fd)) << "I2: " << n << " cut " << cut;
      ASSERT_EQ(b.s->readable(b.fd, false).count, 0);
      put(Buffer(f.begin() + static_cast<ptrdiff_t>(cut), f.end()));
      if (n == 0) continue;
      ASSERT_TRUE(kernel_says_readable(b.fd));
      ASSERT_EQ(b.recv(200, MSG_DONTWAIT), payload) << n << " cut " << cut;
      ASSERT_FALSE(kernel_says_readable(b.fd));
    }
  }
}

TEST_F(RawPeer, PartialChunksAreSwallowedForPollersAndPeeks) {
  put(request());
  const Buffer payload = pattern(5000);
  const Buffer f = chunk(payload, 1);
  for (size_t at = 0; at + 100 < f.size(); at += 100) {
    put(Buffer(f.begin() + static_cast<ptrdiff_t>(at),
               f.begin() + static_cast<ptrdiff_t>(at + 100)));
    ASSERT_FALSE(b.s->is_recv_ready(b.fd));
    ASSERT_FALSE(kernel_says_readable(b.fd)) << at;
  }
  put(Buffer(
      f.begin() + static_cast<ptrdiff_t>(f.size() / 100 * 100 - (f.size() % 100 == 0 ? 100 : 0)),
      f.end()));
  EXPECT_TRUE(b.s->is_recv_ready(b.fd));
  EXPECT_EQ(b.recv(6000, MSG_PEEK), payload);
  EXPECT_EQ(b.recv(6000), payload);
}

TEST_F(RawPeer, ABlockingReadReturnsVerifiedBytesAndDoesNotWaitForAHalf) {
  put(request());
  Buffer two = chunk(pattern(100), 1);
  const Buffer second = chunk(pattern(5000, 2), 2);
  two.insert(two.end(), second.begin(), second.begin() + 2000);
  put(two);
  EXPECT_EQ(b.recv(10'000), pattern(100));
  put(Buffer(second.begin() + 2000, second.end()));
  EXPECT_EQ(b.recv(10'000), pattern(5000, 2));
}

TEST_F(RawPeer, SegmentedSendOfAStranger) {
  put(request(0x40, 1));
  Buffer first = chunk(pattern(400, 1), 1), last = chunk(pattern(30, 2), 1);
  first[2] = DDP_VERSION;
  base::store_be32(&last[16], 400);
  seal(first);
  seal(last);
  put(first);
  put(last);
  EXPECT_EQ(b.recv(400), pattern(400, 1));
  EXPECT_EQ(b.recv(400), pattern(30, 2));
}

TEST_F(RawPeer, BadCrcEndsTheConnectionAndDeliversNothing) {
  put(request());
  put(chunk(pattern(10), 1));
  EXPECT_EQ(b.recv(100), pattern(10));
  b.send(pattern(1));
  Buffer bad = chunk(pattern(5000), 2);
  bad[3000] ^= 1;
  put(bad);
  EXPECT_EQ(recv_error(), EPROTO);
  EXPECT_EQ(b.recv(10).size(), 0u);
  EXPECT_EQ(b.send(pattern(1), MSG_NOSIGNAL).error, EPIPE);
  EXPECT_EQ(b.s->status().state, StreamState::kFailed);
}

TEST_F(RawPeer, VerifiedBytesBeforeAnErrorAreDelivered) {
  put(request());
  Buffer two = chunk(pattern(10), 1);
  Buffer bad = chunk(pattern(20), 2);
  bad[22] ^= 1;
  two.insert(two.end(), bad.begin(), bad.end());
  put(two);
  EXPECT_EQ(b.recv(100), pattern(10));
  // For who receives, and not for a poller that SO_ERROR would then tell nothing of.
  EXPECT_FALSE(b.s->has_kept_error());
  EXPECT_EQ(b.s->judge_error(0), 0);
  EXPECT_EQ(recv_error(), EPROTO);
}

struct Malformed {
  const char* name;
  void (*break_it)(Buffer&);
  const char* terminate;
};
class MalformedChunk : public RawPeer, public testing::WithParamInterface<Malformed> {};
TEST_P(MalformedChunk, EndsWithTheRightTerminate) {
  b.send(pattern(1));
  put(request());
  Buffer f = chunk(pattern(40), 1);
  GetParam().break_it(f);
  seal(f);
  put(f);
  EXPECT_EQ(recv_error(), EPROTO);
  const Buffer all = answer();
  const size_t start = MPA_STARTUP_HEADER_SIZE + base::load_be16(&all[MPA_PD_LENGTH_OFFSET]);
  const size_t at = start + chunk_size(1);
  ASSERT_GT(all.size(), at + kChunkHeader);
  EXPECT_EQ(all[at + 3], RDMAP_CTRL_IETF | RDMAP_OP_TERMINATE);
  const auto t =
      rdmap::decode_terminate(Bytes(all).subspan(at + kChunkHeader), rdmap::Phase::kEstablished);
  ASSERT_TRUE(t.has_value());
  EXPECT_THAT(rdmap::to_string(t->terminate.code), testing::HasSubstr(GetParam().terminate));
}
INSTANTIATE_TEST_SUITE_P(
    Classes, MalformedChunk,
    testing::Values(Malformed{"ddp_version", [](Buffer& f) { f[2] = 0x42; }, "ersion"},
                    Malformed{"msn_skips", [](Buffer& f) { f[15] = 9; }, "MSN"},
                    Malformed{"mo_not_zero", [](Buffer& f) { f[19] = 4; }, "MO"},
                    Malformed{"unknown_queue", [](Buffer& f) { f[11] = 9; }, "QN"},
                    Malformed{"opcode_on_queue_0", [](Buffer& f) { f[3] = 0x4c; }, "pcode"},
                    Malformed{"invalidates", [](Buffer& f) { f[3] = 0x44; }, "nvalidate"},
                    Malformed{"read_request",
                              [](Buffer& f) {
                                f[3] = 0x41;
                                f[11] = 1;
                              },
                              "pcode"},
                    Malformed{"tagged",
                              [](Buffer& f) {
                                f[2] = 0xc1;
                                f[3] = 0x40;
                              },
                              "STag"}),
    [](const auto& p) { return p.param.name; });

TEST_F(RawPeer, LengthShorterThanAHeader) {
  put(request());
  put(Buffer(24, 0));
  EXPECT_EQ(recv_error(), EPROTO);
}

TEST_F(RawPeer, EndInsideAnFpduIsALostStream) {
  put(request());
  const Buffer f = chunk(pattern(100), 1);
  for (const size_t cut : {1u, 30u, 123u}) {
    if (cut > 1) break;
    put(Buffer(f.begin(), f.begin() + static_cast<ptrdiff_t>(cut)));
  }
  ::shutdown(tcp.client, SHUT_WR);
  EXPECT_EQ(recv_error(), ECONNRESET);
  EXPECT_EQ(b.recv(10).size(), 0u);
}

TEST_F(RawPeer, AResetInsideAnFpduIsToldOnce) {
  const Buffer f = chunk(pattern(100), 1);
  put(request() + Buffer(f.begin(), f.begin() + 30));
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
  reset();
  EXPECT_EQ(recv_error(), ECONNRESET);
  EXPECT_EQ(b.recv(10).size(), 0u);
}

TEST_F(RawPeer, AHostThatIsGoneInsideAnFpduIsToldOnce) {
  const Buffer f = chunk(pattern(100), 1);
  put(request() + Buffer(f.begin(), f.begin() + 30));
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
  const FarPeer far;
  reset();
  EXPECT_EQ(recv_error(), EHOSTUNREACH);
  EXPECT_EQ(b.recv(10).size(), 0u);
}

TEST_F(RawPeer, AHostThatIsGoneBehindAPartIsToldByTheNextCallThatSends) {
  put(request() + chunk(pattern(4), 1));
  const FarPeer far;
  reset();
  EXPECT_EQ(b.recv(7, MSG_WAITALL), pattern(4));
  EXPECT_EQ(b.send(pattern(7), MSG_NOSIGNAL).error, EHOSTUNREACH);
  EXPECT_EQ(b.send(pattern(7), MSG_NOSIGNAL).error, EPIPE);
}

// The kernel takes a part of an FPDU, and the connection ends before the rest has room.
class CutFpdu : public RawPeer {
 protected:
  CutFpdu() {
    put(request());
    EXPECT_EQ(b.send(pattern(1)).count, 1);
    self = this;
    signals = 0;
    signal(SIGPIPE, [](int) { ++signals; });
    base::sys.sendmsg = [](int fd, const msghdr* m, int flags) {
      base::sys.sendmsg = ::sendmsg;
      base::sys.send = [](int fd_of_rest, const void* rest, size_t left, int how) {
        base::sys.send = ::send;
        self->end();
        return ::send(fd_of_rest, rest, left, how);
      };
      return ::send(fd, m->msg_iov[0].iov_base, 100, flags);
    };
  }
  ~CutFpdu() override {
    base::sys.poll = ::poll;
    base::sys.send = ::send;
    base::sys.sendmsg = ::sendmsg;
    signal(SIGPIPE, SIG_DFL);
  }
  virtual void end() { reset(); }
  // The first FPDU counts, whole.
  void expect_part() {
    const Io io = b.send(pattern(1'000'000));
    EXPECT_EQ(io.error, 0);
    EXPECT_GT(io.count, 0);
    EXPECT_LT(io.count, 1'000'000);
    EXPECT_EQ(signals, 0);
  }
  static inline CutFpdu* self;
  static inline int signals;
};

TEST_F(CutFpdu, AResetBeforeItsRestIsToldByTheNextCallThatSends) {
  expect_part();
  EXPECT_EQ(b.send(pattern(7)).error, ECONNRESET);
  EXPECT_EQ(signals, 0);
  EXPECT_EQ(b.send(pattern(7)).error, EPIPE);
  EXPECT_EQ(signals, 1);
}

TEST_F(CutFpdu, AResetBeforeItsRestIsToldByTheNextCallThatReceives) {
  expect_part();
  EXPECT_EQ(recv_error(), ECONNRESET);
  EXPECT_EQ(b.recv(10).size(), 0u);
}

TEST_F(CutFpdu, AResetBeforeItsRestIsToldOnceAlsoInsideAnFpduOfThePeers) {
  Buffer part = chunk(pattern(100), 1);
  part.resize(50);
  put(part);
  uint8_t byte;
  EXPECT_EQ(b.recv(&byte, 1, MSG_DONTWAIT).error, EAGAIN);
  expect_part();
  EXPECT_EQ(recv_error(), ECONNRESET);
  EXPECT_EQ(b.recv(10).size(), 0u);
}

// Others may have closed numbers meanwhile where no preload sees it.
TEST_F(CutFpdu, WhoWaitsForRoomForItsRestHasSlept) {
  static bool has_room;
  has_room = false;
  base::sys.send = [](int fd, const void* fpdu, size_t, int flags) {
    base::sys.send = [](int fd_of_rest, const void* rest, size_t left, int how) {
      if (has_room) return ::send(fd_of_rest, rest, left, how);
      errno = EAGAIN;
      return ssize_t{-1};
    };
    base::sys.poll = [](pollfd* fds, nfds_t count, int ms) {
      has_room = ms != 0;
      return ::poll(fds, count, ms);
    };
    base::wake_tick = 0;
    return ::send(fd, fpdu, 100, flags);
  };
  EXPECT_EQ(b.send(pattern(1000)).count, 1000);
  EXPECT_TRUE(has_room);
  EXPECT_NE(base::last_wake(), 0);
}

class ShutInsideAnFpdu : public CutFpdu {
 protected:
  void end() override { ::shutdown(b.fd, SHUT_WR); }
};

TEST_F(ShutInsideAnFpdu, TheCallReturnsItsPartWithoutASignal) {
  expect_part();
  EXPECT_EQ(b.send(pattern(7)).error, EPIPE);
  EXPECT_EQ(signals, 1);
}

TEST_F(RawPeer, AResetBehindAPartIsToldByTheNextCallThatSends) {
  put(request() + chunk(pattern(4), 1));
  reset();
  EXPECT_EQ(b.recv(7, MSG_WAITALL), pattern(4));
  EXPECT_EQ(b.send(pattern(7), MSG_NOSIGNAL).error, ECONNRESET);
  EXPECT_EQ(b.send(pattern(7), MSG_NOSIGNAL).error, EPIPE);
  EXPECT_EQ(b.recv(10).size(), 0u);
}

// What came of it counts on TCP; here it is lost, and must not look like a whole stream.
class EndInsideAnFpdu : public RawPeer, public testing::WithParamInterface<int> {};

TEST_P(EndInsideAnFpdu, IsToldAlsoWhereAResetIsBehindIt) {
  // Of a way that was gone for a while.
  EXPECT_EQ(b.s->judge_error(GetParam()), GetParam());
  Buffer part = chunk(pattern(100), 2);
  part.resize(50);
  put(request() + chunk(pattern(4), 1) + part);
  ::shutdown(tcp.client, SHUT_WR);
  EXPECT_EQ(b.recv(4), pattern(4));
  reset();
  pollfd both{b.fd, POLLHUP, 0};
  EXPECT_EQ(poll(&both, 1, 1000), 1);
  EXPECT_EQ(recv_error(), ECONNRESET);
}

INSTANTIATE_TEST_SUITE_P(RawPeer, EndInsideAnFpdu, testing::Values(0, EHOSTUNREACH));

TEST_F(RawPeer, TheirTerminateIsAResetWithAReason) {
  put(request());
  Buffer f(fpdu_size(DDP_UNTAGGED_HEADER_SIZE + 4), 0);
  const Buffer head{0, 22, 0x41, 0x47, 0, 0, 0, 0, 0,    0,    0, 2,
                    0, 0,  0,    1,    0, 0, 0, 0, 0x02, 0x05, 0, 0};
  std::copy(head.begin(), head.end(), f.begin());
  seal(f);
  put(f);
  EXPECT_EQ(recv_error(), ECONNRESET);
  EXPECT_NE(b.s->status().failure, nullptr);
}

TEST_F(RawPeer, StartFrameInPieces) {
  const Buffer r = request();
  uint8_t x[100];
  for (const uint8_t byte : r) {
    put({byte});
    ASSERT_EQ(b.recv(x, sizeof x, MSG_DONTWAIT).error, EAGAIN);
    ASSERT_FALSE(kernel_says_readable(b.fd));
  }
  put(chunk(pattern(100), 1));
  EXPECT_EQ(b.recv(100), pattern(100));
}

TEST_F(RawPeer, WhatIsNotMpaIsLeftUntouched) {
  put({'G', 'E', 'T', ' ', '/'});
  EXPECT_EQ(recv_error(), EPROTO);
  EXPECT_EQ(recv_error(), EPROTO);
  uint8_t x[10];
  EXPECT_EQ(::recv(b.fd, x, sizeof x, 0), 5);
}

// A frame, chunks that the call has room for, and the beginning of another.
TEST_F(RawPeer, ChunksThatComeWithTheFrameAreTakenAsFarAsTheyAreDelivered) {
  put(request());
  Buffer sent = chunk(pattern(10), 1);
  for (const Buffer& next : {chunk(pattern(20), 2), chunk(pattern(300), 3)})
    sent.insert(sent.end(), next.begin(), next.end());
  put(Buffer(sent.begin(), sent.end() - 100));
  EXPECT_EQ(b.recv(10), pattern(10));
  EXPECT_TRUE(kernel_says_readable(b.fd));
  EXPECT_EQ(b.recv(300), pattern(20));
  uint8_t x[1000];
  EXPECT_EQ(b.recv(x, sizeof x, MSG_DONTWAIT).error, EAGAIN);
  EXPECT_FALSE(kernel_says_readable(b.fd));
  put(Buffer(sent.end() - 100, sent.end()));
  EXPECT_EQ(b.recv(300), pattern(300));
}

TEST_F(RawPeer, AFrameThatIsCutIsWaitedForByACallThatHasTakenItsBeginning) {
  const Buffer r = request();
  put(Buffer(r.begin(), r.begin() + 15));
  std::thread rest([&] {
    usleep(20'000);
    put(Buffer(r.begin() + 15, r.end()));
    put(chunk(pattern(600), 1));
  });
  EXPECT_EQ(b.recv(600), pattern(600));
  rest.join();
}

TEST_F(RawPeer, IsAnsweredInItsOwnRevisionAndForm) {
  put(request(0x40, 2));
  put(chunk(pattern(5), 1));
  EXPECT_EQ(b.recv(10), pattern(5));
  EXPECT_EQ(b.send(pattern(1)).count, 1);
  b.s->shutdown(b.fd, SHUT_WR);
  const Buffer reply = answer();
  EXPECT_EQ(reply[MPA_REVISION_OFFSET], 2);
  EXPECT_EQ(reply[MPA_FLAGS_OFFSET] & MPA_FLAG_ENHANCED, 0);
}

struct BadFrame {
  const char* name;
  uint8_t flags, revision;
};
class BadRequest : public RawPeer, public testing::WithParamInterface<BadFrame> {};
TEST_P(BadRequest, IsRefused) {
  put(request(GetParam().flags, GetParam().revision));
  EXPECT_EQ(recv_error(), EPROTO);
  EXPECT_EQ(b.s->status().state, StreamState::kFailed);
  EXPECT_EQ(answer()[MPA_FLAGS_OFFSET] & MPA_FLAG_REJECT, MPA_FLAG_REJECT);
}
INSTANTIATE_TEST_SUITE_P(Classes, BadRequest,
                         testing::Values(BadFrame{"markers", 0xd0, 2},
                                         BadFrame{"revision_3", 0x50, 3}),
                         [](const auto& p) { return p.param.name; });

class Undecided : public testing::Test {
 protected:
  TcpPair tcp;
  End b{tcp.server, Role::kResponder, Peer::kUnknown};
};

TEST_F(Undecided, PlainBytesMakeItPlainAndStay) {
  ASSERT_EQ(::send(tcp.client, "MPA is a word", 13, 0), 13);
  uint8_t x[100];
  EXPECT_EQ(b.recv(x, sizeof x).error, EPROTOTYPE);
  EXPECT_EQ(b.s->status().state, StreamState::kPlain);
  EXPECT_EQ(::recv(b.fd, x, sizeof x, 0), 13);
}

TEST_F(Undecided, ABareBeginningOfTheKeyBecomesPlainInBoundedTime) {
  ASSERT_EQ(::send(tcp.client, "MPA ID", 6, 0), 6);
  uint8_t x[100];
  EXPECT_EQ(b.recv(x, sizeof x).error, EPROTOTYPE);
  EXPECT_EQ(::recv(b.fd, x, sizeof x, 0), 6);
}

TEST_F(Undecided, WritingFirstMakesItPlain) {
  EXPECT_EQ(b.send(pattern(3)).error, EPROTOTYPE);
  uint8_t x[10];
  EXPECT_EQ(::recv(tcp.client, x, sizeof x, MSG_DONTWAIT), -1);
}

TEST_F(Undecided, ARequestMakesItDdpAndIsAnsweredAtOnce) {
  End a(tcp.client, Role::kInitiator, Peer::kRequired);
  std::thread server([&] { EXPECT_EQ(b.recv(10), pattern(10)); });
  EXPECT_EQ(a.s->on_connected(a.fd, true).error, 0);
  EXPECT_EQ(a.send(pattern(10)).count, 10);
  server.join();
  EXPECT_EQ(b.s->status().state, StreamState::kOpen);
}

TEST(Strict, NoFpduBeforeTheReply) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator, Peer::kProved, true),
      b(tcp.server, Role::kResponder, Peer::kProved, true);
  std::thread server([&] {
    EXPECT_EQ(b.recv(10), pattern(10));
    EXPECT_EQ(b.send(pattern(10)).count, 10);
  });
  EXPECT_EQ(a.s->on_connected(a.fd, false).error, 0);
  EXPECT_EQ(a.send(pattern(10)).count, 10);
  EXPECT_EQ(a.recv(10), pattern(10));
  server.join();
}

// The Request may be out already, as after a non-blocking connect: the first FPDU waits all the
// same.
class SendsAfterTheRequest : public testing::TestWithParam<StreamAttr> {};
INSTANTIATE_TEST_SUITE_P(Strict, SendsAfterTheRequest,
                         testing::Values(StreamAttr{.peer = Peer::kProved,
                                                    .is_strict = true,
                                                    .start_timeout = Duration::from_ms(50)},
                                         StreamAttr{.peer = Peer::kRequired,
                                                    .start_timeout = Duration::from_ms(50)}));

TEST_P(SendsAfterTheRequest, OnlyOnceTheReplyIsThere) {
  TcpPair tcp;
  auto r = user_stream_engine().open(tcp.client, GetParam());
  ASSERT_TRUE(r.has_value());
  EXPECT_EQ((*r)->on_connected(tcp.client, false).error, 0);
  uint8_t wire[1024];
  const ssize_t request = ::recv(tcp.server, wire, sizeof wire, 0);
  EXPECT_GE(request, MPA_STARTUP_HEADER_SIZE);
  Buffer payload = pattern(10);
  const iovec v{payload.data(), payload.size()};
  EXPECT_EQ((*r)->send(tcp.client, {&v, 1}, 0).error, ETIMEDOUT);
  EXPECT_LE(::recv(tcp.server, wire, sizeof wire, MSG_DONTWAIT), 0) << "an FPDU before the Reply";
  (*r)->release(tcp.client);
}

TEST(Strict, ARequiredPeerThatIsSilentTimesOut) {
  TcpPair tcp;
  auto r = user_stream_engine().open(
      tcp.client,
      {.role = Role::kInitiator, .peer = Peer::kRequired, .start_timeout = Duration::from_ms(50)});
  ASSERT_TRUE(r.has_value());
  EXPECT_EQ((*r)->on_connected(tcp.client, true).error, ETIMEDOUT);
  (*r)->release(tcp.client);
}

}  // namespace
}  // namespace ddpsock::engine
