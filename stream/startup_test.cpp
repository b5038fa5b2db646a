// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up under programs that do things in any order: nobody that must not wait does, no
// thread waits for another one of the same socket, and until there is a verdict a call does what it
// does on plain TCP.
#include <errno.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "stream/stream_testing.h"
#include "stream/user_stream.h"
#include "stream/wire_testing.h"

namespace ddpsock::engine {
namespace {

constexpr int64_t kSoon = 1'000'000'000;

// What happened between its making and the question took no time to speak of.
class Clock {
 public:
  bool is_soon() const { return (base::now() - start_).ns < kSoon; }

 private:
  Time start_ = base::now();
};

Buffer raw_recv(int fd, size_t n, int flags = 0) {
  Buffer in(n);
  const ssize_t got = ::recv(fd, in.data(), n, flags);
  in.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return in;
}

Buffer reply() {
  Buffer f = request();
  std::copy_n(reinterpret_cast<const uint8_t*>(MPA_REPLY_KEY), MPA_KEY_SIZE, f.begin());
  return f;
}

class Undecided : public testing::Test {
 protected:
  TcpPair tcp;
  End b{tcp.server, Role::kResponder, Peer::kUnknown};
};

TEST_F(Undecided, ABeginningOfARequestHoldsNoCallThatMustNotWait) {
  const Buffer all = request();
  for (const size_t n : {1u, 15u, 16u, 19u}) {
    for (const bool is_send : {true, false}) {
      TcpPair pair;
      End end(pair.server, Role::kResponder, Peer::kUnknown);
      const Buffer some(all.begin(), all.begin() + static_cast<ptrdiff_t>(n));
      put(pair.client, some);
      while (!kernel_says_readable(end.fd)) continue;
      const Clock clock;
      uint8_t x[100];
      const Io io =
          is_send ? end.send(pattern(5), MSG_DONTWAIT) : end.recv(x, sizeof x, MSG_DONTWAIT);
      EXPECT_EQ(io.error, EPROTOTYPE) << n;
      EXPECT_TRUE(clock.is_soon());
      EXPECT_EQ(raw_recv(end.fd, 100), some) << "all of it is there for the program";
    }
  }
}

TEST_F(Undecided, AWholeRequestIsOneAlsoForAWriter) {
  put(tcp.client, request());
  while (!kernel_says_readable(b.fd)) continue;
  EXPECT_EQ(b.send(pattern(5), MSG_DONTWAIT).count, 5);
  EXPECT_EQ(b.s->status().state, StreamState::kOpen);
}

TEST_F(Undecided, AWriterDoesNotWaitForAReader) {
  Io read{};
  {
    Sleeper reader([&] {
      uint8_t x[10];
      read = b.recv(x, sizeof x);
    });
    const Clock clock;
    EXPECT_EQ(b.send(pattern(5)).error, EPROTOTYPE);
    EXPECT_TRUE(clock.is_soon());
    EXPECT_FALSE(reader.is_done());
    put(tcp.client, request());
  }
  EXPECT_EQ(read.error, EPROTOTYPE) << "the verdict stands, whatever comes later";
  EXPECT_EQ(raw_recv(b.fd, 100), request());
}

TEST_F(Undecided, TheLowWaterMarkIsTheKernelsAgainOnceItIsPlain) {
  b.s->set_receive_low_water(10);
  put(tcp.client, pattern(3));
  while (!kernel_says_readable(b.fd)) continue;
  uint8_t x[10];
  EXPECT_EQ(b.recv(x, sizeof x, MSG_DONTWAIT).error, EPROTOTYPE);
  int mark = 0;
  socklen_t size = sizeof mark;
  ASSERT_EQ(getsockopt(b.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &size), 0);
  EXPECT_EQ(mark, 10);
  EXPECT_FALSE(kernel_says_readable(b.fd));
  put(tcp.client, pattern(7));
  pollfd p{b.fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 5000), 1);
}

// The kernel wakes one that has taken a part once as many more bytes are there.
TEST_F(Undecided, AReaderWaitsForTheLowWaterMarkBeforeTheKernelHasIt) {
  b.s->set_receive_low_water(10);
  put(tcp.client, pattern(3));
  Io read{};
  {
    Sleeper reader([&] {
      uint8_t x[20];
      read = b.recv(x, sizeof x);
    });
    EXPECT_FALSE(reader.is_done());
    put(tcp.client, pattern(7));
  }
  EXPECT_EQ(read.error, EPROTOTYPE);
  EXPECT_EQ(raw_recv(b.fd, 100).size(), 10u);
}

TEST_F(Undecided, WhatIsBelowTheLowWaterMarkIsReadWhenTimeIsUp) {
  const timeval patience{.tv_sec = 0, .tv_usec = 20'000};
  ASSERT_EQ(setsockopt(b.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  b.s->set_receive_low_water(10);
  put(tcp.client, pattern(3));
  uint8_t x[20];
  EXPECT_EQ(b.recv(x, sizeof x).count, 3);
}

TEST_F(Undecided, TheLowWaterMarkIsTheKernelsAgainOnceItIsPassedOn) {
  b.s->set_receive_low_water(10);
  EXPECT_EQ(b.s->return_to_plain(b.fd).state, PlainReturn::State::kPlain);
  int mark = 0;
  socklen_t size = sizeof mark;
  ASSERT_EQ(getsockopt(b.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &size), 0);
  EXPECT_EQ(mark, 10);
}

TEST_F(Undecided, CallsThatStreamsRefuseAreThePlainSockets) {
  uint8_t x[10];
  EXPECT_EQ(b.recv(x, sizeof x, MSG_OOB | MSG_DONTWAIT).error, EPROTOTYPE);
  TcpPair pair;
  End end(pair.server, Role::kResponder, Peer::kUnknown);
  EXPECT_EQ(end.send(pattern(1), MSG_OOB).error, EPROTOTYPE);
}

TEST_F(Undecided, ShutdownAnswersARequestFirst) {
  put(tcp.client, request());
  while (!kernel_says_readable(b.fd)) continue;
  EXPECT_TRUE(b.s->shutdown(b.fd, SHUT_WR).is_ok());
  const Buffer answer = raw_recv(tcp.client, 1000, MSG_WAITALL);
  ASSERT_GT(answer.size(), size_t{MPA_KEY_SIZE});
  EXPECT_EQ(memcmp(answer.data(), MPA_REPLY_KEY, MPA_KEY_SIZE), 0);
  put(tcp.client, chunk(pattern(9), 1));
  EXPECT_EQ(b.recv(100), pattern(9));
}

TEST_F(Undecided, AShutdownThatTheKernelRefusesDecidesNothing) {
  EXPECT_EQ(b.s->shutdown(b.fd, 7).error, EINVAL);
  EXPECT_EQ(b.s->status().state, StreamState::kStarting);
  put(tcp.client, request());
  put(tcp.client, chunk(pattern(9), 1));
  EXPECT_EQ(b.recv(100), pattern(9));
}

TEST_F(Undecided, ShutdownWithoutARequestMakesItPlain) {
  EXPECT_TRUE(b.s->shutdown(b.fd, SHUT_WR).is_ok());
  EXPECT_EQ(b.s->status().state, StreamState::kPlain);
  EXPECT_TRUE(raw_recv(tcp.client, 100).empty());
}

// The client may be one that waits, whatever the server was told of it.
class Answers : public testing::TestWithParam<Peer> {};
INSTANTIATE_TEST_SUITE_P(Peers, Answers,
                         testing::Values(Peer::kProved, Peer::kRequired, Peer::kUnknown));

TEST_P(Answers, AtOnceWhereTheProgramOnlyReads) {
  TcpPair tcp;
  End b(tcp.server, Role::kResponder, GetParam());
  put(tcp.client, request());
  while (!kernel_says_readable(b.fd)) continue;
  uint8_t x[10];
  EXPECT_EQ(b.recv(x, sizeof x, MSG_DONTWAIT).error, EAGAIN);
  EXPECT_EQ(raw_recv(tcp.client, MPA_KEY_SIZE).size(), size_t{MPA_KEY_SIZE});
}

TEST_P(Answers, AtOnceWhereTheProgramOnlyPolls) {
  TcpPair tcp;
  End b(tcp.server, Role::kResponder, GetParam());
  put(tcp.client, request());
  while (!kernel_says_readable(b.fd)) continue;
  EXPECT_FALSE(b.s->is_recv_ready(b.fd));
  EXPECT_EQ(raw_recv(tcp.client, MPA_KEY_SIZE).size(), size_t{MPA_KEY_SIZE});
}

TEST(Initiator, ThatMustNotWaitDoesNot) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator, Peer::kRequired);
  const Clock clock;
  EXPECT_EQ(a.send(pattern(5), MSG_DONTWAIT).error, EAGAIN);
  EXPECT_TRUE(clock.is_soon());
  put(tcp.server, reply());
  while (!kernel_says_readable(a.fd)) continue;
  EXPECT_EQ(a.send(pattern(5), MSG_DONTWAIT).count, 5);
}

TEST(Initiator, HasAWriterThatDoesNotWaitForItsReader) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator, Peer::kRequired);
  Sleeper reader([&] { EXPECT_EQ(a.recv(10), pattern(7)); });
  {
    Sleeper writer([&] {
      const Clock clock;
      EXPECT_EQ(a.send(pattern(5)).count, 5);
      EXPECT_TRUE(clock.is_soon());
    });
    put(tcp.server, reply());
  }
  EXPECT_FALSE(reader.is_done());
  put(tcp.server, chunk(pattern(7), 1));
}

TEST(Initiator, HasAReaderThatDoesNotWaitForItsWriter) {
  TcpPair tcp(8192, 8192);
  End b(tcp.server, Role::kResponder, Peer::kProved, false, false);
  std::atomic<bool> is_over{false};
  Sleeper writer([&] {
    while (!is_over && b.send(pattern(1 << 20), MSG_NOSIGNAL).is_ok()) continue;
  });
  Buffer first = request();
  first[MPA_FLAGS_OFFSET] = 0x10;  // enhanced, and no CRC
  Buffer f = chunk(pattern(9), 1);
  const Clock clock;
  put(tcp.client, first + f);
  EXPECT_EQ(b.recv(100), pattern(9));
  EXPECT_TRUE(clock.is_soon());
  EXPECT_FALSE(writer.is_done());
  is_over = true;
  ::shutdown(tcp.server, SHUT_RDWR);
}

// As TCP's next call says it, whichever call of ours has heard it of the kernel.
TEST(Initiator, IsToldOfAResetBeforeTheReply) {
  for (const bool crc : {true, false}) {
    TcpPair tcp;
    End a(tcp.client, Role::kInitiator, Peer::kProved, false, crc);
    ASSERT_EQ(a.send(pattern(5)).count, 5);
    const linger reset{1, 0};
    setsockopt(tcp.server, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    tcp.close_server();
    EXPECT_EQ(a.send(pattern(5), MSG_NOSIGNAL).error, ECONNRESET) << crc;
    EXPECT_EQ(a.send(pattern(5), MSG_NOSIGNAL).error, EPIPE) << crc;
  }
}

TEST(Initiator, IsToldOfAResetThatCameBeforeItsFirstLook) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator, Peer::kProved);
  const linger reset{1, 0};
  setsockopt(tcp.server, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  tcp.close_server();
  a.s->settle(a.fd);
  pollfd p{a.fd, 0, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 1);
  EXPECT_EQ(p.revents, POLLERR | POLLHUP);
  uint8_t byte;
  EXPECT_EQ(a.recv(&byte, 1, MSG_DONTWAIT).error, ECONNRESET);
  EXPECT_EQ(a.recv(&byte, 1, MSG_DONTWAIT).count, 0);
}

TEST(Initiator, IsToldOfAResetThatItsOwnSendHasMet) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator, Peer::kProved);
  const Buffer much(32 << 20);
  Sleeper sender([&] {
    const Io io = a.send(much, MSG_NOSIGNAL);
    EXPECT_GT(io.count, 0);
    EXPECT_LT(io.count, static_cast<ssize_t>(much.size()));
  });
  sender.await_calm();
  tcp.close_server();
  sender.join();
  uint8_t byte;
  EXPECT_EQ(a.recv(&byte, 1, MSG_DONTWAIT).error, ECONNRESET);
  EXPECT_EQ(a.recv(&byte, 1, MSG_DONTWAIT).count, 0);
}

// The frame that lies unread is not the program's: TCP would end such a connection, not reset it.
TEST(Closing, BeforeTheReplyIsReadEndsTheConnection) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator, Peer::kRequired);
  ASSERT_EQ(a.s->on_connected(a.fd, false).error, 0);
  EXPECT_GE(raw_recv(tcp.server, 100).size(), request().size());
  put(tcp.server, reply());
  while (!kernel_says_readable(a.fd)) continue;
  a.release();
  tcp.close_client();
  char byte;
  EXPECT_EQ(::recv(tcp.server, &byte, 1, 0), 0) << strerror(errno);
}

// A Reply would come to a closed socket, and reset the connection under a program that has an end
// to read and its own to say.
TEST(Closing, BehindARequestGetsNoReply) {
  TcpPair tcp;
  End b(tcp.server, Role::kResponder);
  put(tcp.client, request());
  tcp.close_client();
  pollfd p{b.fd, POLLRDHUP, 0};
  ASSERT_EQ(::poll(&p, 1, 5000), 1);
  EXPECT_TRUE(b.recv(10).empty());
  EXPECT_EQ(b.s->shutdown(b.fd, SHUT_WR).error, 0);
}

TEST(Closing, BeforeTheRequestIsReadAnswersItAndEndsTheConnection) {
  for (const Peer peer : {Peer::kUnknown, Peer::kProved, Peer::kRequired}) {
    TcpPair tcp;
    End b(tcp.server, Role::kResponder, peer);
    put(tcp.client, request());
    while (!kernel_says_readable(b.fd)) continue;
    b.release();
    tcp.close_server();
    uint8_t bytes[100];
    ssize_t n;
    while ((n = ::recv(tcp.client, bytes, sizeof bytes, 0)) > 0) continue;
    EXPECT_EQ(n, 0) << strerror(errno);
  }
}

// A server that forks for each connection, and closes its copy before all of the Request has come.
TEST(Closing, ACopyOfAnUndecidedConnectionDecidesNothing) {
  const Buffer all = request();
  for (const bool is_exit : {false, true})
    for (const ptrdiff_t n : {10, 19}) {
      SCOPED_TRACE(is_exit * 100 + n);
      TcpPair tcp;
      End b(tcp.server, Role::kResponder, Peer::kUnknown);
      put(tcp.client, Buffer(all.begin(), all.begin() + n));
      while (!kernel_says_readable(b.fd)) continue;
      const pid_t child = fork();
      if (child == 0) {
        is_exit ? b.s->before_exit(b.fd) : b.release();
        _exit(0);
      }
      waitpid(child, nullptr, 0);
      EXPECT_EQ(b.s->status().state, StreamState::kStarting);
      put(tcp.client, Buffer(all.begin() + n, all.end()) + chunk(pattern(9), 1));
      EXPECT_EQ(b.recv(100), pattern(9));
    }
}

TEST(Closing, ACopyOfAnUndecidedConnectionAnswersAWholeRequest) {
  TcpPair tcp;
  End b(tcp.server, Role::kResponder, Peer::kUnknown);
  put(tcp.client, request());
  while (!kernel_says_readable(b.fd)) continue;
  const pid_t child = fork();
  if (child == 0) {
    b.release();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(raw_recv(tcp.client, MPA_KEY_SIZE).size(), size_t{MPA_KEY_SIZE});
  EXPECT_FALSE(kernel_says_readable(b.fd)) << "nothing is left to reset the connection";
}

TEST(StartFrame, ByteByByteDoesNotProlongATimeout) {
  TcpPair tcp;
  End b(tcp.server, Role::kResponder);
  const timeval limit{0, 200'000};
  ASSERT_EQ(setsockopt(b.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  std::atomic<bool> is_over{false};
  std::thread drip([&] {
    Buffer all = request();
    all.resize(500, 0);
    base::store_be16(&all[MPA_PD_LENGTH_OFFSET], 480);
    for (size_t i = 0; i < all.size() && !is_over; ++i) {
      put(tcp.client, {all[i]});
      usleep(20'000);
    }
  });
  const Clock clock;
  uint8_t x[10];
  EXPECT_EQ(b.recv(x, sizeof x).error, EAGAIN);
  EXPECT_TRUE(clock.is_soon());
  is_over = true;
  drip.join();
}

std::atomic<int> signals_caught{0};

// All handlers restart, and no timeout is set: what the program waits for goes on.
class Interrupted : public testing::Test {
 protected:
  Interrupted() {
    for (const int fd : {tcp.client, tcp.server}) {
      const timeval none{};
      EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none), 0);
    }
    struct sigaction action{};
    action.sa_handler = [](int) { ++signals_caught; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    signals_caught = 0;
  }
  ~Interrupted() override { signal(SIGUSR1, SIG_DFL); }

  // The calling thread, until it has had several signals; then `go_on`.
  template <typename F>
  static std::jthread interrupt(F go_on) {
    return std::jthread([target = pthread_self(), go_on] {
      for (int i = 0; i < 1000 && signals_caught < 5; ++i) {
        usleep(5000);
        pthread_kill(target, SIGUSR1);
      }
      go_on();
    });
  }

  TcpPair tcp;
};

TEST_F(Interrupted, AFirstWriteThatWaitsForTheReplyGoesOn) {
  End a(tcp.client, Role::kInitiator, Peer::kRequired);
  const auto other = interrupt([&] { put(tcp.server, reply()); });
  EXPECT_EQ(a.send(pattern(5)).count, 5);
}

TEST_F(Interrupted, AConnectGoesOn) {
  End a(tcp.client, Role::kInitiator, Peer::kRequired);
  const auto other = interrupt([&] { put(tcp.server, reply()); });
  EXPECT_EQ(a.s->on_connected(a.fd, true).error, 0);
}

TEST_F(Interrupted, AFirstWriteWithATimeoutIsOver) {
  End a(tcp.client, Role::kInitiator, Peer::kRequired);
  const timeval limit{5, 0};
  ASSERT_EQ(setsockopt(a.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0);
  const auto other = interrupt([] {});
  EXPECT_EQ(a.send(pattern(5)).error, EINTR);
}

TEST_F(Interrupted, AnUndecidedReaderGoesOn) {
  End b(tcp.server, Role::kResponder, Peer::kUnknown);
  const Buffer all = request();
  put(tcp.client, Buffer(all.begin(), all.begin() + 10));
  const auto other = interrupt([] {});
  uint8_t x[10];
  EXPECT_EQ(b.recv(x, sizeof x).error, EPROTOTYPE);
}

TEST_F(Interrupted, ASecondReaderGoesOn) {
  End b(tcp.server, Role::kResponder);
  put(tcp.client, request());
  const Sleeper first([&] { EXPECT_EQ(b.recv(1).size(), 1u); });
  const auto other = interrupt([&] { put(tcp.client, chunk(pattern(2), 1)); });
  EXPECT_EQ(b.recv(1).size(), 1u);
}

uint32_t segments_with_data(int fd) {
  constexpr size_t kDataSegsOut = 156;  // of the kernel's tcp_info, of which libc knows a part
  Buffer info(256);
  socklen_t size = 256;
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info.data(), &size), 0);
  uint32_t segments;
  std::memcpy(&segments, &info[kDataSegsOut], sizeof segments);
  return segments;
}

TEST(FirstChunk, GoesWithTheFrameAndIsTakenWithIt) {
  for (const size_t size : {1, 100, 400, 3000, 4096}) {
    TcpPair tcp;
    End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
    EXPECT_EQ(a.send(pattern(size)).count, static_cast<ssize_t>(size));
    EXPECT_EQ(segments_with_data(a.fd), 1u) << size;
    EXPECT_EQ(b.recv(5000), pattern(size));
    EXPECT_FALSE(kernel_says_readable(b.fd));
    EXPECT_EQ(b.send(pattern(size, 2)).count, static_cast<ssize_t>(size));
    EXPECT_EQ(segments_with_data(b.fd), 1u) << size;
    EXPECT_EQ(a.recv(5000), pattern(size, 2));
  }
}

// What the call does not take stays where pollers see it (I1), and what came with it is not passed
// over (I3).
TEST(FirstChunk, IsNotTakenByACallThatWantsLessOrMore) {
  TcpPair tcp;
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  EXPECT_EQ(a.send(pattern(100)).count, 100);
  Buffer got = b.recv(40);
  EXPECT_TRUE(kernel_says_readable(b.fd));
  const Buffer rest = b.recv(100);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, pattern(100));
  EXPECT_EQ(b.send(pattern(10)).count, 10);
  EXPECT_EQ(b.send(pattern(20)).count, 20);
  Buffer both = pattern(10), second = pattern(20);
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(a.recv(100), both);
  EXPECT_FALSE(kernel_says_readable(a.fd));
}

// Neither is sent, and both are by the next call.
TEST(FirstChunk, IsRefusedWithTheFrame) {
  TcpPair tcp;
  const Buffer filler(1 << 16);
  size_t queued = 0;
  for (ssize_t n; (n = ::send(tcp.client, filler.data(), filler.size(), MSG_DONTWAIT)) > 0;)
    queued += static_cast<size_t>(n);
  End a(tcp.client, Role::kInitiator), b(tcp.server, Role::kResponder);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(a.send(pattern(100), MSG_DONTWAIT).error, EAGAIN);
  for (size_t left = queued; left > 0;) left -= raw_recv(tcp.server, left, MSG_WAITALL).size();
  EXPECT_EQ(a.send(pattern(100)).count, 100);
  EXPECT_EQ(b.recv(200), pattern(100));
}

}  // namespace
}  // namespace ddpsock::engine
