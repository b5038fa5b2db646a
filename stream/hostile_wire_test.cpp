// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A peer on the wire that is no friend: what it may send without end, and what a stranger may send
// that our own peers do not. No call of the program waits longer than TCP's would, and no byte is
// lost.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/sys.h"
#include "mpa/startup_frame.h"
#include "relatives/arena.h"
#include "stream/hello.h"
#include "stream/stream_testing.h"
#include "stream/user_stream.h"
#include "stream/wire_testing.h"

namespace ddpsock::engine {
namespace {

// It says that it joins memory that is offered, and never does.
Buffer reply_of_one_that_joins() {
  std::array<uint8_t, DDPSOCK_HELLO_MAX_SIZE> hello;
  const auto size = stream::encode(
      hello, {.features = DDPSOCK_FEATURE_STREAM | DDPSOCK_FEATURE_JOINS, .max_payload = 60'000});
  mpa::StartupFrame frame{.kind = mpa::FrameKind::kReply,
                          .private_data = Bytes(hello).first(size.value_or(0))};
  frame.enhanced = mpa::Enhanced{};
  Buffer bytes(512);
  bytes.resize(mpa::write_startup(frame, bytes).value_or(0));
  return bytes;
}

class HostileWire : public testing::Test {
 protected:
  explicit HostileWire(bool is_offering = false)
      : b(tcp.server, is_offering ? Role::kInitiator : Role::kResponder, Peer::kProved, false, true,
          is_offering) {
    if (is_offering) {
      EXPECT_EQ(b.send({'x'}).count, 1);
    }
    put(is_offering ? reply_of_one_that_joins() : request());
  }
  void put(const Buffer& bytes) { engine::put(tcp.client, bytes); }
  // With little room little is read at a time.
  int error_of_recv(int flags) {
    uint8_t x;
    return b.recv(&x, 1, flags).error;
  }
  void let_recv_time_out_after(int ms) {
    const timeval limit{ms / 1000, ms % 1000 * 1000};
    ASSERT_EQ(setsockopt(b.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  }

  TcpPair tcp;
  End b;
};

TEST_F(HostileWire, PeekShowsASegmentedSendAndTakesNothing) {
  put(segment(pattern(400, 1), 1, 0, false) + segment(pattern(30, 2), 1, 400, true) +
      chunk(pattern(5, 3), 2));
  const Buffer all = pattern(400, 1) + pattern(30, 2) + pattern(5, 3);
  EXPECT_EQ(b.recv(1, MSG_PEEK), Buffer{all[0]});
  EXPECT_EQ(b.recv(1000, MSG_PEEK), all);
  EXPECT_EQ(b.s->readable(b.fd, false).count, 435);
  EXPECT_TRUE(b.s->is_recv_ready(b.fd));
  EXPECT_EQ(b.recv(401), Buffer(all.begin(), all.begin() + 401));
  EXPECT_EQ(b.recv(1000, MSG_PEEK), Buffer(all.begin() + 401, all.end())) << "begun in a segment";
  EXPECT_EQ(b.recv(1000), Buffer(all.begin() + 401, all.end()));
}

TEST_F(HostileWire, PeekLooksPastWhatIsNotOfTheStream) {
  put(chunk({}, 1) + empty_write() + chunk({}, 2) + empty_write() + chunk(pattern(9), 3));
  EXPECT_EQ(b.recv(100, MSG_PEEK), pattern(9));
  EXPECT_EQ(b.recv(100, MSG_PEEK), pattern(9));
  EXPECT_EQ(b.recv(100), pattern(9));
}

TEST_F(HostileWire, APollerIsNotToldOfWhatNobodyGets) {
  for (const auto& nothing : {chunk({}, 1), empty_write(), chunk({}, 2) + empty_write()}) {
    put(nothing);
    EXPECT_FALSE(b.s->is_recv_ready(b.fd));
    EXPECT_FALSE(kernel_says_readable(b.fd));
    EXPECT_EQ(b.s->readable(b.fd, false).count, 0);
    EXPECT_EQ(error_of_recv(MSG_DONTWAIT | MSG_PEEK), EAGAIN);
  }
  put(chunk(pattern(9), 3));
  EXPECT_TRUE(b.s->is_recv_ready(b.fd));
  EXPECT_EQ(b.recv(100), pattern(9));
}

TEST_F(HostileWire, WhatIsWrongBehindWhatNobodyGetsIsTold) {
  put(chunk({}, 1) + empty_write() + chunk(pattern(9), 7));
  EXPECT_TRUE(b.s->is_recv_ready(b.fd));
  EXPECT_EQ(error_of_recv(MSG_DONTWAIT | MSG_PEEK), EPROTO);
}

// Sends empty FPDUs, as fast as they go or one by one, until it is told to stop.
class Flood {
 public:
  Flood(int fd, uint32_t msn, useconds_t pause, size_t at_once)
      : fd_(fd), msn_(msn), thread_([this, pause, at_once] {
          Buffer some;
          const Buffer write = empty_write();
          while (!is_over_) {
            some.clear();
            for (size_t i = 0; i < at_once; ++i) some = std::move(some) + chunk({}, msn_++) + write;
            for (size_t at = 0; at < some.size() && !is_over_;) {
              const ssize_t n = ::send(fd_, some.data() + at, some.size() - at, MSG_DONTWAIT);
              if (n > 0) at += static_cast<size_t>(n);
            }
            has_begun_ = true;
            usleep(pause);
          }
        }) {
    while (!has_begun_) sched_yield();
  }
  ~Flood() {
    is_over_ = true;
    thread_.join();
  }

 private:
  int fd_;
  uint32_t msn_;
  std::atomic<bool> is_over_{false}, has_begun_{false};
  std::thread thread_;
};

TEST_F(HostileWire, AQueueFullOfNothingCostsFewCalls) {
  const Buffer nothing = empty_write();
  Buffer run;
  for (int i = 0; i < 2000; ++i) run = std::move(run) + nothing;
  put(run);
  static int calls;
  calls = 0;
  const auto real = base::sys.recv;
  base::sys.recv = [](int fd, void* to, size_t n, int flags) {
    ++calls;
    return ::recv(fd, to, n, flags);
  };
  EXPECT_EQ(error_of_recv(MSG_DONTWAIT), EAGAIN);
  base::sys.recv = real;
  EXPECT_LT(calls, 120);
}

TEST_F(HostileWire, WhatLiesBehindAFloodIsDeliveredByTheSameCall) {
  Buffer run;
  for (uint32_t msn = 1; msn <= 1000; ++msn) run = std::move(run) + chunk({}, msn);
  const Buffer payload = pattern(100);
  put(run + chunk(payload, 1001));
  EXPECT_EQ(b.recv(50, MSG_DONTWAIT), Buffer(payload.begin(), payload.begin() + 50));
  EXPECT_TRUE(kernel_says_readable(b.fd)) << "I1";
  EXPECT_EQ(b.recv(500, MSG_DONTWAIT).size(), 50u);
  EXPECT_FALSE(kernel_says_readable(b.fd));
}

// A peer may ask for chunks as small as it likes; many of them then go out in one call.
TEST(SmallChunks, OfEverySizeThatIsSentAtOnce) {
  TcpPair tcp;
  auto opened =
      user_stream_engine().open(tcp.client, {.role = Role::kInitiator, .max_payload = 256});
  ASSERT_TRUE(opened.has_value());
  End b(tcp.server, Role::kResponder);
  for (const size_t size : {256u, 257u, 4000u, 4095u, 4096u, 4097u, 20'000u, 32'768u, 60'000u}) {
    const Buffer sent = pattern(size);
    const iovec v{const_cast<uint8_t*>(sent.data()), size};
    ASSERT_EQ((*opened)->send(tcp.client, {&v, 1}, 0).count, static_cast<ssize_t>(size));
    ASSERT_EQ(b.recv(size, MSG_WAITALL), sent);
  }
  (*opened)->release(tcp.client);
}

// A process that has begun with one-sided operations drains the stream (one_sided_rx.cpp).
struct NoOperations final : OneSided {
  void wake() override {}
  void take_in() override {
    uint8_t bytes[4096];
    const MutBytes all[] = {bytes};
    while (arrived.pop(all) > 0) continue;
    arrived.note_done();
  }
  int flush() override { return 0; }
};

// All blocks that relatives share are lent.
class NoBlocks {
 public:
  NoBlocks() {
    Arena& arena = *Arena::get();
    for (uint32_t b = arena.blocks.allocate(); b != Blocks::kNoBlock; b = arena.blocks.allocate())
      lent_.push_back(b);
  }
  ~NoBlocks() {
    for (const uint32_t b : lent_) Arena::get()->blocks.free(b);
  }

 private:
  std::vector<uint32_t> lent_;
};

TEST_F(HostileWire, WithoutABlockACallBesideOneSidedOperationsEnds) {
  NoOperations operations;
  ASSERT_TRUE(b.s->one_sided_way().begin(b.fd, operations));
  EXPECT_EQ(error_of_recv(MSG_DONTWAIT), EAGAIN);
  put(chunk(pattern(9), 1));
  static int calls;
  calls = 0;
  const auto real = base::sys.recvmsg;
  base::sys.recvmsg = [](int fd, msghdr* m, int flags) -> ssize_t {
    if (++calls < 100) return ::recvmsg(fd, m, flags);
    errno = EIO;
    return -1;
  };
  {
    const NoBlocks none;
    for (const int flags : {0, int{MSG_DONTWAIT}, int{MSG_WAITALL}, int{MSG_PEEK}})
      EXPECT_EQ(error_of_recv(flags), ENOBUFS) << flags;
    EXPECT_EQ(b.s->readable(b.fd, false).count, 0);
  }
  base::sys.recvmsg = real;
  EXPECT_LT(calls, 100);
  EXPECT_TRUE(kernel_says_readable(b.fd)) << "I1";
  EXPECT_EQ(b.recv(100), pattern(9)) << "nothing is lost";
  b.s->one_sided_way().end();
}

// It has not begun yet, or has ended; one that is asked again and again is not asked for ever.
struct DeafOperations final : OneSided {
  static constexpr int kMost = 1000;
  void wake() override {}
  void take_in() override {
    if (++times_asked < kMost) return;
    uint8_t bytes[4096];
    const MutBytes all[] = {bytes};
    while (arrived.pop(all) > 0) continue;
    arrived.note_done();
  }
  int flush() override { return 0; }
  int times_asked = 0;
};

TEST_F(HostileWire, AQueuePairThatTakesNothingMakesNoCallSpin) {
  DeafOperations operations;
  ASSERT_TRUE(b.s->one_sided_way().begin(b.fd, operations));
  let_recv_time_out_after(50);
  Buffer run;
  while (run.size() <= FpduFifo::kSize) run = std::move(run) + empty_write();
  std::thread writer([&] { put(run + chunk(pattern(9), 1)); });
  while (operations.arrived.is_empty() && operations.times_asked < DeafOperations::kMost)
    EXPECT_EQ(error_of_recv(MSG_DONTWAIT), EAGAIN);
  EXPECT_EQ(error_of_recv(0), EAGAIN);
  operations.times_asked = 0;
  EXPECT_EQ(error_of_recv(MSG_DONTWAIT), EAGAIN);
  EXPECT_LT(operations.times_asked, DeafOperations::kMost);
  operations.times_asked = DeafOperations::kMost;
  EXPECT_EQ(b.recv(100), pattern(9)) << "nothing is lost";
  writer.join();
  b.s->one_sided_way().end();
}

struct Waiting {
  const char* name;
  int flags;
  bool is_draining;
  bool is_offering = false;  // memory, which the peer might still join
};
class PatienceOfACall : public HostileWire, public testing::WithParamInterface<Waiting> {
 protected:
  PatienceOfACall() : HostileWire(GetParam().is_offering) {
    const bool is_begun = !GetParam().is_draining || b.s->one_sided_way().begin(b.fd, operations_);
    EXPECT_TRUE(is_begun);
  }
  ~PatienceOfACall() override { b.s->one_sided_way().end(); }

 private:
  NoOperations operations_;
};
INSTANTIATE_TEST_SUITE_P(Calls, PatienceOfACall,
                         testing::Values(Waiting{"recv", 0, false},
                                         Waiting{"peek", MSG_PEEK, false},
                                         Waiting{"all", MSG_WAITALL, false},
                                         Waiting{"recv_draining", 0, true},
                                         Waiting{"peek_draining", MSG_PEEK, true},
                                         Waiting{"all_draining", MSG_WAITALL, true},
                                         Waiting{"recv_offering", 0, false, true},
                                         Waiting{"peek_offering", MSG_PEEK, false, true},
                                         Waiting{"all_offering", MSG_WAITALL, false, true}),
                         [](const auto& p) { return p.param.name; });

TEST_P(PatienceOfACall, IsNotProlongedByNothing) {
  let_recv_time_out_after(200);
  const Flood drops(tcp.client, 1, 50'000, 1);
  const Time start = base::now();
  EXPECT_EQ(error_of_recv(GetParam().flags), EAGAIN);
  const Duration took = base::now() - start;
  EXPECT_GE(took.ns, 190'000'000);
  EXPECT_LT(took.ns, 1'000'000'000);
}

// However the peer cuts them, also so that no read finds less than it asks for.
TEST_P(PatienceOfACall, IsNotProlongedByParts) {
  let_recv_time_out_after(200);
  constexpr int kMost = 40;  // takes ten times as long
  uint32_t msn = 1;
  for (const uint32_t size : {4u, kChunkHeader}) {
    std::atomic<bool> is_over{false};
    int parts = 0;
    std::thread drops([&] {
      for (; parts < kMost && !is_over; ++msn) {
        const Buffer one = chunk({}, msn);
        for (auto at = one.begin(); at != one.end(); ++parts) {
          const auto end = one.end() - at > size ? at + size : one.end();
          put(Buffer(at, end));
          at = end;
          if (!is_over) usleep(50'000);
        }
      }
    });
    EXPECT_EQ(error_of_recv(GetParam().flags), EAGAIN);
    is_over = true;
    drops.join();
    EXPECT_LT(parts, kMost);
  }
}

TEST_P(PatienceOfACall, IsNotProlongedByAFlood) {
  let_recv_time_out_after(200);
  const Flood flood(tcp.client, 1, 0, 500);
  const Time start = base::now();
  EXPECT_EQ(error_of_recv(GetParam().flags), EAGAIN);
  EXPECT_LT((base::now() - start).ns, 1'500'000'000);
}

// Of this thread: what others get of the processor meanwhile is not the call's.
int64_t processor_ns() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return spent.tv_sec * 1'000'000'000 + spent.tv_nsec;
}

TEST_P(PatienceOfACall, IsNoneWhereTheCallMustNotWait) {
  const Flood flood(tcp.client, 1, 0, 2000);
  static int sleeps;
  sleeps = 0;
  const auto real = base::sys.poll;
  base::sys.poll = [](pollfd* fds, nfds_t count, int timeout) {
    sleeps += timeout != 0;
    return ::poll(fds, count, timeout);
  };
  for (int time = 0; time < 20; ++time) {
    const int64_t start = processor_ns();
    EXPECT_EQ(error_of_recv(GetParam().flags | MSG_DONTWAIT), EAGAIN);
    EXPECT_LT(processor_ns() - start, 400'000'000);
  }
  const int64_t start = processor_ns();
  b.s->is_recv_ready(b.fd);
  b.s->readable(b.fd, false);
  EXPECT_LT(processor_ns() - start, 800'000'000);
  EXPECT_EQ(sleeps, 0);
  base::sys.poll = real;
}

TEST_P(PatienceOfACall, EndsWithAnEdgeToCome) {
  const int set = epoll_create1(0);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &event), 0);
  uint32_t msn = 1;
  for (int time = 0; time < 50; ++time) {
    std::thread writer([&] {
      Buffer run;
      for (int i = 0; i < 500; ++i) run = std::move(run) + chunk({}, msn++);
      put(run + chunk({'x'}, msn++));
    });
    for (Io io{}; io.count != 1;) {
      ASSERT_EQ(epoll_wait(set, &event, 1, 5000), 1);
      uint8_t x[10];
      io = b.recv(x, sizeof x, GetParam().flags | MSG_DONTWAIT);
      ASSERT_TRUE(io.is_ok() || io.error == EAGAIN);
    }
    if ((GetParam().flags & MSG_PEEK) != 0) {
      EXPECT_EQ(b.recv(10), Buffer{'x'});
    }
    writer.join();
  }
  ::close(set);
}

}  // namespace
}  // namespace ddpsock::engine
