// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The way back to plain TCP: two ends of a connection in one thread, whose bytes must arrive once
// and in order whatever is left undone, and peers that break the rules.
#include <arpa/inet.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "base/sys.h"
#include "ddp/segment.h"
#include "mpa/startup_frame.h"
#include "stream/chunk.h"
#include "stream/hello.h"
#include "stream/stream_testing.h"

namespace ddpsock::engine {
namespace {

using State = PlainReturn::State;

// One end as a program has it: the stream until that says plain, then the socket.
class Program {
 public:
  Program(int fd, Role role, bool crc, bool memory)
      : end(fd, role, Peer::kProved, false, crc, memory) {}

  // Sends the next `n` bytes of this side's stream, or as many as fit.
  void send(size_t n) {
    Buffer b(n);
    for (size_t i = 0; i < n; ++i) b[i] = byte_at(sent_ + i);
    Io io = is_plain_ ? Io::fail(EPROTOTYPE) : end.send(b, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (turns_plain(io)) {
      const ssize_t k = ::send(end.fd, b.data(), n, MSG_DONTWAIT | MSG_NOSIGNAL);
      io = k < 0 ? Io::fail(errno) : Io::ok(k);
    }
    if (io.is_ok()) sent_ += static_cast<size_t>(io.count);
    ASSERT_TRUE(io.is_ok() || io.error == EAGAIN) << strerror(io.error);
  }

  // Reads at most `n` bytes and checks them. False: there were none.
  bool receive(size_t n) {
    Buffer b(n, 0);
    Io io = is_plain_ ? Io::fail(EPROTOTYPE) : end.recv(b.data(), n, MSG_DONTWAIT);
    if (turns_plain(io)) {
      const ssize_t k = ::recv(end.fd, b.data(), n, MSG_DONTWAIT);
      io = k < 0 ? Io::fail(errno) : Io::ok(k);
    }
    EXPECT_TRUE(io.is_ok() || io.error == EAGAIN) << strerror(io.error);
    if (!io.is_ok() || io.count == 0) return false;
    for (ssize_t i = 0; i < io.count; ++i) {
      EXPECT_EQ(b[static_cast<size_t>(i)], byte_at(received_)) << "at byte " << received_;
      ++received_;
    }
    return true;
  }

  void look() {
    uint8_t b[100];
    Io io = end.recv(b, sizeof b, MSG_DONTWAIT | MSG_PEEK);
    if (turns_plain(io)) return;
    for (ssize_t i = 0; i < io.count; ++i)
      EXPECT_EQ(b[i], byte_at(received_ + static_cast<size_t>(i))) << "peeked after " << received_;
  }

  State step() {
    const PlainReturn now = end.s->return_to_plain(end.fd);
    why = now.why;
    if (now.state == State::kPlain) is_plain_ = true;
    return now.state;
  }

  // I1: what can be delivered is known to the kernel.
  void check_readiness() {
    if (is_plain_) return;
    const Io io = end.s->readable(end.fd, false);
    EXPECT_TRUE(io.count <= 0 || kernel_says_readable(end.fd)) << io.count << " at " << received_;
  }

  bool is_plain() const { return is_plain_; }
  size_t sent() const { return sent_; }
  size_t received() const { return received_; }

  End end;
  const char* why = "";

 private:
  static uint8_t byte_at(size_t at) { return static_cast<uint8_t>(at * 131 + (at >> 8) * 7); }
  bool turns_plain(const Io& io) {
    if (io.error != EPROTOTYPE) return false;
    EXPECT_EQ(end.s->status().state, StreamState::kPlain);
    is_plain_ = true;
    return true;
  }

  bool is_plain_ = false;
  size_t sent_ = 0, received_ = 0;
};

struct Kind {
  const char* name;
  bool crc, memory;
};

class RawTest : public testing::TestWithParam<Kind> {
 protected:
  // Start-up over, and in memory if that is the kind.
  void open() {
    a.send(1);
    while (b.received() < a.sent()) b.receive(10);
    b.send(2);
    while (a.received() < b.sent()) a.receive(10);
    a.send(3);
    while (b.received() < a.sent()) b.receive(10);
    EXPECT_STREQ(a.end.s->status().engine, GetParam().memory ? "shm" : "user");
  }
  // `one` leaves while `other` only waits.
  State leave(Program& one, Program& other) {
    State s = State::kPending;
    for (int i = 0; i < 100 && s == State::kPending; ++i) {
      s = one.step();
      if (!other.is_plain()) other.end.s->is_recv_ready(other.end.fd);
    }
    return s;
  }
  void drain(Program& one, Program& other) {
    for (int idle = 0; idle < 3;) {
      bool any = other.receive(5000);
      any |= one.receive(5000);
      idle = any ? 0 : idle + 1;
    }
    EXPECT_EQ(one.received(), other.sent());
    EXPECT_EQ(other.received(), one.sent());
  }

  TcpPair tcp;
  Program a{tcp.client, Role::kInitiator, GetParam().crc, GetParam().memory};
  Program b{tcp.server, Role::kResponder, GetParam().crc, GetParam().memory};
};
INSTANTIATE_TEST_SUITE_P(Kinds, RawTest,
                         testing::Values(Kind{"crc", true, false},
                                         Kind{"without_crc", false, false},
                                         Kind{"memory", true, true}),
                         [](const auto& p) { return p.param.name; });

TEST_P(RawTest, BothEndsArePlainAfterwards) {
  open();
  ASSERT_EQ(leave(a, b), State::kPlain) << a.why;
  EXPECT_EQ(a.end.s->status().state, StreamState::kPlain);
  EXPECT_FALSE(kernel_says_readable(a.end.fd));
  a.send(100);
  b.send(200);
  drain(a, b);
  EXPECT_TRUE(b.is_plain());
  EXPECT_FALSE(kernel_says_readable(b.end.fd));
}

TEST_P(RawTest, TheResponderCanLeaveToo) {
  open();
  ASSERT_EQ(leave(b, a), State::kPlain) << b.why;
  a.send(100);
  b.send(200);
  drain(a, b);
}

TEST_P(RawTest, WhatWasNotReadComesAgainPlain) {
  open();
  b.send(1000);
  b.send(40);
  a.receive(17);
  ASSERT_EQ(leave(a, b), State::kPlain) << a.why;
  Buffer raw(5000);
  b.send(5);
  EXPECT_EQ(::recv(a.end.fd, raw.data(), raw.size(), MSG_DONTWAIT | MSG_PEEK), 1000 + 40 - 17 + 5);
  drain(a, b);
}

TEST_P(RawTest, WhatThePeerHasNotReadIsReadFirst) {
  open();
  a.send(3000);
  State s = a.step();
  EXPECT_EQ(s, State::kPending) << a.why;
  while (s == State::kPending && b.receive(100)) s = a.step();
  EXPECT_EQ(leave(a, b), State::kPlain) << a.why;
  a.send(10);
  drain(a, b);
}

TEST_P(RawTest, MoreThanCanComeAgainIsRefusedAndNothingIsLost) {
  open();
  b.send(60'000);
  EXPECT_EQ(leave(a, b), State::kRefused);
  a.send(10);
  drain(a, b);
  b.send(100);
  EXPECT_EQ(leave(a, b), State::kPlain) << a.why;
  drain(a, b);
}

TEST_P(RawTest, OneThatGivesUpReadsOn) {
  open();
  b.send(500);
  EXPECT_EQ(a.step(), State::kPending);
  EXPECT_EQ(a.receive(100), true);
  a.send(50);
  // Only now does the other see it, and repeats what was unread then.
  drain(a, b);
  b.send(70);
  a.send(30);
  drain(a, b);
  EXPECT_TRUE(a.is_plain());
  EXPECT_TRUE(b.is_plain());
}

TEST_P(RawTest, BothLeaveAtOnce) {
  open();
  a.send(100);
  b.send(200);
  State sa = State::kPending, sb = State::kPending;
  for (int i = 0; i < 100 && (sa == State::kPending || sb == State::kPending); ++i) {
    if (sa == State::kPending) sa = a.step();
    if (sb == State::kPending) sb = b.step();
  }
  EXPECT_EQ(sa, State::kPlain) << a.why;
  EXPECT_EQ(sb, State::kPlain) << b.why;
  drain(a, b);
}

TEST_P(RawTest, AFinIsAMarker) {
  open();
  EXPECT_EQ(b.end.s->shutdown(b.end.fd, SHUT_WR).error, 0);
  ASSERT_EQ(leave(a, b), State::kPlain) << a.why;
  a.send(100);
  while (b.receive(1000)) continue;
  EXPECT_EQ(b.received(), a.sent());
  uint8_t byte;
  EXPECT_EQ(::recv(a.end.fd, &byte, 1, MSG_DONTWAIT), 0);
}

TEST_P(RawTest, UnreadBytesBeforeAFinCannotComeAgain) {
  open();
  b.send(10);
  EXPECT_EQ(b.end.s->shutdown(b.end.fd, SHUT_WR).error, 0);
  EXPECT_EQ(a.step(), State::kRefused);
  a.send(100);
  drain(a, b);
}

// The side that accepted leaves before either has said a word; the other waits for it in a poller.
TEST_P(RawTest, BeforeTheFirstWord) {
  ASSERT_EQ(leave(b, a), State::kPlain) << b.why;
  a.send(10);
  b.send(20);
  drain(a, b);
}

TEST_P(RawTest, BehindTheFirstWord) {
  a.send(10);
  ASSERT_EQ(leave(b, a), State::kPlain) << b.why;
  EXPECT_FALSE(b.end.s->status().failure);
  b.send(20);
  drain(a, b);
}

TEST_P(RawTest, AFinInsteadOfAFirstWord) {
  EXPECT_EQ(a.end.s->shutdown(a.end.fd, SHUT_WR).error, 0);
  while (!kernel_says_readable(b.end.fd)) continue;
  ASSERT_EQ(leave(b, a), State::kPlain) << b.why;
  b.send(200);
  drain(a, b);
  uint8_t byte;
  EXPECT_EQ(::recv(b.end.fd, &byte, 1, MSG_DONTWAIT), 0);
}

TEST_P(RawTest, TheRespondersFinInsteadOfAFirstWord) {
  a.send(100);
  EXPECT_EQ(b.end.s->shutdown(b.end.fd, SHUT_WR).error, 0);
  while (!kernel_says_readable(a.end.fd)) continue;
  leave(a, b);
  a.send(200);
  drain(a, b);
}

TEST_P(RawTest, APeerThatClosedBeforeAWord) {
  a.end.release();
  tcp.close_client();
  while (!kernel_says_readable(b.end.fd)) continue;
  ASSERT_EQ(b.step(), State::kPlain) << b.why;
  uint8_t byte;
  EXPECT_EQ(::recv(b.end.fd, &byte, 1, MSG_DONTWAIT), 0) << strerror(errno);
}

TEST_P(RawTest, WhoClosesWithNothingUnreadButTheMarkerResetsNothing) {
  a.send(10);
  while (!kernel_says_readable(b.end.fd)) continue;
  for (int i = 0; i < 100 && !b.is_plain(); ++i) {
    if (b.step() == State::kPending) a.look();
  }
  ASSERT_TRUE(b.is_plain()) << b.why;
  while (!kernel_says_readable(a.end.fd)) continue;
  a.end.release();
  tcp.close_client();
  while (b.receive(100)) continue;
  EXPECT_EQ(b.received(), 10u);
  uint8_t byte;
  EXPECT_EQ(::recv(b.end.fd, &byte, 1, 0), 0) << strerror(errno);
}

TEST_P(RawTest, APeerThatDoesNotAnswerChangesNothing) {
  open();
  b.send(10);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(a.step(), State::kPending);
  EXPECT_EQ(a.end.s->status().state, StreamState::kOpen);
  EXPECT_EQ(b.end.s->status().state, StreamState::kOpen);
  drain(a, b);
}

// Random calls on both ends. Every byte arrives once and in order, and the kernel knows of it.
TEST_P(RawTest, RandomCalls) {
  const char* asked = getenv("DDPSOCK_ATTACKS");
  const uint32_t seeds = asked != nullptr ? static_cast<uint32_t>(atoi(asked)) : 300;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    std::minstd_rand rng(seed);
    TcpPair pair;
    Program x(pair.client, Role::kInitiator, GetParam().crc, GetParam().memory);
    Program y(pair.server, Role::kResponder, GetParam().crc, GetParam().memory);
    const size_t most = 1 + rng() % 5000;
    for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
      Program& one = rng() % 2 == 0 ? x : y;
      switch (rng() % 8) {
        case 0:
        case 1:
          one.send(1 + rng() % most);
          break;
        case 2:
        case 3:
        case 4:
          one.receive(1 + rng() % most);
          break;
        case 5:
          if (!one.is_plain()) one.look();
          break;
        case 6:
          if (!one.is_plain()) one.end.s->is_recv_ready(one.end.fd);
          break;
        default:
          if (i > 10 && !one.is_plain()) one.step();
          break;
      }
      x.check_readiness();
      y.check_readiness();
    }
    drain(x, y);
    x.send(1);
    y.send(1);
    drain(x, y);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

// A peer that says what it likes, to an end that accepted.
class RawHostileTest : public testing::Test {
 protected:
  static constexpr uint16_t kAll = DDPSOCK_FEATURE_STREAM | DDPSOCK_FEATURE_RAW;

  static Buffer startup(mpa::FrameKind kind, uint16_t features) {
    uint8_t hello[DDPSOCK_HELLO_MAX_SIZE];
    const auto n = stream::encode(hello, {.features = features, .max_payload = 60'000});
    const mpa::StartupFrame frame{
        .kind = kind, .wants_crc = true, .private_data = Bytes(hello).first(*n)};
    Buffer out(MPA_MAX_STARTUP_SIZE);
    out.resize(mpa::write_startup(frame, out).value());
    return out;
  }
  void begin(uint16_t features = kAll) {
    Buffer out = startup(mpa::FrameKind::kRequest, features);
    put(out);
    out.resize(MPA_MAX_STARTUP_SIZE);
    EXPECT_EQ(end.send(pattern(1)).count, 1);
    // Its Reply and that byte.
    while (::recv(tcp.client, out.data(), out.size(), MSG_DONTWAIT) > 0) continue;
  }
  void put(const Buffer& b) {
    ASSERT_EQ(::send(tcp.client, b.data(), b.size(), 0), static_cast<ssize_t>(b.size()));
  }
  struct Segment {
    uint8_t opcode = RDMAP_OP_SEND_SE;
    uint32_t msn = 1, mo = 0;
    bool is_last = true;
  };
  static Buffer fpdu(const Segment& s, const Buffer& payload) {
    Buffer b(chunk_size(static_cast<uint32_t>(payload.size())));
    const auto ulpdu = static_cast<uint16_t>(DDP_UNTAGGED_HEADER_SIZE + payload.size());
    uint8_t* p = mpa::write_header(b.data(), ulpdu);
    p = ddp::write_header(
        p, ddp::UntaggedHeader{.is_last = s.is_last,
                               .rsvd_ulp = {static_cast<uint8_t>(RDMAP_CTRL_IETF | s.opcode), 0},
                               .qn = RDMAP_QN_SEND,
                               .msn = s.msn,
                               .mo = s.mo});
    std::copy(payload.begin(), payload.end(), p);
    mpa::finish_fpdu(b, ulpdu, true);
    return b;
  }
  static Buffer words(uint32_t kind, uint32_t number, const Buffer& more = {}) {
    Buffer b(8);
    base::store_be32(base::store_be32(b.data(), kind), number);
    b.insert(b.end(), more.begin(), more.end());
    return b;
  }
  void mark(uint32_t msn, uint32_t number = 0) {
    put(fpdu({.msn = msn}, words(DDPSOCK_RAW_MARK, number)));
  }
  int error_of_recv() {
    uint8_t b[16];
    return end.recv(b, sizeof b, MSG_DONTWAIT).error;
  }
  void expect_end() {
    EXPECT_EQ(error_of_recv(), EPROTO);
    EXPECT_EQ(end.s->status().state, StreamState::kFailed);
  }
  Buffer answer() {
    Buffer b(100'000);
    const ssize_t n = ::recv(tcp.client, b.data(), b.size(), MSG_DONTWAIT);
    b.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return b;
  }

  TcpPair tcp;
  End end{tcp.server, Role::kResponder};
};

TEST_F(RawHostileTest, AMarkerNobodyAskedForIsAnswered) {
  begin();
  mark(1);
  EXPECT_EQ(error_of_recv(), EPROTOTYPE);
  put({'p', 'l', 'a', 'i', 'n'});
  const Buffer reply = answer();
  ASSERT_EQ(reply.size(), chunk_size(8));
  EXPECT_EQ(base::load_be32(&reply[kChunkHeader]), DDPSOCK_RAW_MARK);
  Buffer b(10);
  EXPECT_EQ(::recv(end.fd, b.data(), b.size(), MSG_DONTWAIT), 5);
}

TEST_F(RawHostileTest, BytesReadWithTheMarkerAreDelivered) {
  begin();
  Buffer all = fpdu({.opcode = RDMAP_OP_SEND}, pattern(100));
  const Buffer marker = fpdu({.msn = 2}, words(DDPSOCK_RAW_MARK, 0));
  all.insert(all.end(), marker.begin(), marker.end());
  const Buffer plain = pattern(3000, 9);
  all.insert(all.end(), plain.begin(), plain.end());
  put(all);
  Buffer expected = pattern(100);
  expected.insert(expected.end(), plain.begin(), plain.end());
  // Odd sizes, so that what is read ahead ends anywhere.
  Buffer got;
  for (size_t n = 1; got.size() < expected.size(); n = n % 61 + 1) {
    ASSERT_TRUE(kernel_says_readable(end.fd)) << "I1 at " << got.size();
    Buffer b(n);
    Io io = end.recv(b.data(), n, MSG_DONTWAIT);
    if (io.error == EPROTOTYPE) io = Io::ok(::recv(end.fd, b.data(), n, MSG_DONTWAIT));
    ASSERT_GT(io.count, 0) << got.size();
    got.insert(got.end(), b.begin(), b.begin() + io.count);
  }
  EXPECT_EQ(got, expected);
}

TEST_F(RawHostileTest, AShortReadMeansThatNoMoreIsThere) {
  begin();
  put(fpdu({.opcode = RDMAP_OP_SEND}, pattern(100)));
  mark(2);
  put(pattern(50, 2));
  EXPECT_EQ(end.recv(1000).size(), 150u);
}

TEST_F(RawHostileTest, AShortLookMeansThatNoMoreIsThere) {
  begin();
  put(fpdu({.opcode = RDMAP_OP_SEND}, pattern(100)));
  mark(2);
  put(pattern(50, 2));
  Buffer expected = pattern(100);
  const Buffer plain = pattern(50, 2);
  expected.insert(expected.end(), plain.begin(), plain.end());
  EXPECT_EQ(end.s->readable(end.fd, false).count, 150);
  Buffer seen(1000);
  ASSERT_EQ(end.recv(seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT).count, 150);
  seen.resize(150);
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(end.recv(1000), expected);
}

TEST_F(RawHostileTest, ASecondMarkerIsPlainBytes) {
  begin();
  mark(1);
  mark(2);
  EXPECT_EQ(end.recv(100), fpdu({.msn = 2}, words(DDPSOCK_RAW_MARK, 0)));
}

TEST_F(RawHostileTest, RepeatingWhatNobodyAskedForEndsTheConnection) {
  begin();
  mark(1, 5);
  expect_end();
}

TEST_F(RawHostileTest, AMarkerOutOfTurnEndsTheConnection) {
  begin();
  mark(2);
  expect_end();
}

TEST_F(RawHostileTest, AMarkerInTheMiddleOfAMessageEndsTheConnection) {
  begin();
  put(fpdu({.opcode = RDMAP_OP_SEND, .is_last = false}, pattern(100)));
  EXPECT_EQ(end.recv(1000).size(), 100u);
  mark(1);
  expect_end();
}

TEST_F(RawHostileTest, AMarkerBehindItsBeginningEndsTheConnection) {
  begin();
  put(fpdu({.mo = 8}, words(DDPSOCK_RAW_MARK, 0)));
  expect_end();
}

TEST_F(RawHostileTest, AMarkerThatIsNotTheLastSegmentEndsTheConnection) {
  begin();
  put(fpdu({.is_last = false}, words(DDPSOCK_RAW_MARK, 0)));
  expect_end();
}

TEST_F(RawHostileTest, ABadCrcEndsTheConnection) {
  begin();
  Buffer b = fpdu({}, words(DDPSOCK_RAW_MARK, 0));
  b.back() ^= 1;
  put(b);
  expect_end();
}

TEST_F(RawHostileTest, WordsThatMeanNothingEndTheConnection) {
  begin();
  put(fpdu({}, words(0x52415722, 0)));
  expect_end();
}

TEST_F(RawHostileTest, EveryTruncationEndsTheConnection) {
  for (size_t n = 0; n < 8; ++n) {
    RawHostileTest_EveryTruncationEndsTheConnection_Test one;
    one.begin();
    Buffer b = words(DDPSOCK_RAW_MARK, 0);
    b.resize(n);
    one.put(fpdu({}, b));
    one.expect_end();
  }
}

// The peer's lengths reach the side that only looks, too.
TEST_F(RawHostileTest, EveryTruncationRefusesWhoLooks) {
  for (uint32_t ulpdu = DDP_TAGGED_HEADER_SIZE; ulpdu < DDP_UNTAGGED_HEADER_SIZE + 8; ++ulpdu) {
    RawHostileTest_EveryTruncationRefusesWhoLooks_Test one;
    one.begin();
    Buffer b = fpdu({}, words(DDPSOCK_RAW_MARK, 0));
    b.resize(fpdu_size(ulpdu));
    mpa::write_header(b.data(), static_cast<uint16_t>(ulpdu));
    mpa::finish_fpdu(b, static_cast<uint16_t>(ulpdu), true);
    one.put(b);
    EXPECT_EQ(one.end.s->return_to_plain(one.end.fd).state, State::kRefused) << ulpdu;
    EXPECT_EQ(one.end.s->status().state, StreamState::kOpen) << ulpdu;
    one.expect_end();
  }
}

// Whoever looks finds them as unfit as whoever reads.
TEST_F(RawHostileTest, AMarkerOutOfItsPlaceRefusesWhoLooks) {
  for (const Segment& segment : {Segment{.msn = 2}, Segment{.mo = 8}, Segment{.is_last = false}}) {
    RawHostileTest_AMarkerOutOfItsPlaceRefusesWhoLooks_Test one;
    one.begin();
    one.put(fpdu(segment, words(DDPSOCK_RAW_MARK, 0)));
    EXPECT_EQ(one.end.s->return_to_plain(one.end.fd).state, State::kRefused);
    one.expect_end();
  }
}

TEST_F(RawHostileTest, AMarkerWithMoreInItEndsTheConnection) {
  begin();
  put(fpdu({}, words(DDPSOCK_RAW_MARK, 0, {1})));
  expect_end();
}

TEST_F(RawHostileTest, AskingForTooMuchEndsTheConnection) {
  begin();
  put(fpdu({}, words(DDPSOCK_RAW_ASK, 2, Buffer(DDPSOCK_RAW_MAX_RETURNED + 1))));
  expect_end();
}

TEST_F(RawHostileTest, AnOfferOfMemoryThatNobodyWantsIsIgnored) {
  begin();
  for (uint32_t msn = 1; msn < 4; ++msn) {
    put(fpdu({.msn = msn}, words(DDPSOCK_RAW_OFFER, 1, Buffer(DDPSOCK_RAW_OFFER_SIZE))));
    EXPECT_EQ(error_of_recv(), EAGAIN);
  }
  EXPECT_TRUE(answer().empty());
  EXPECT_EQ(end.s->status().state, StreamState::kOpen);
}

TEST_F(RawHostileTest, AnOfferOfMemoryOfAnotherSizeEndsTheConnection) {
  begin();
  put(fpdu({}, words(DDPSOCK_RAW_OFFER, 1, Buffer(DDPSOCK_RAW_OFFER_SIZE + 1))));
  expect_end();
}

// Only the side that connected makes it.
TEST_F(RawHostileTest, AnOfferOfMemoryToTheInitiatorEndsTheConnection) {
  TcpPair pair;
  End a(pair.client, Role::kInitiator);
  EXPECT_EQ(a.send(pattern(1)).count, 1);
  const Buffer offer = fpdu({}, words(DDPSOCK_RAW_OFFER, 1, Buffer(DDPSOCK_RAW_OFFER_SIZE)));
  for (const Buffer& b : {startup(mpa::FrameKind::kReply, kAll), offer})
    ASSERT_EQ(::send(pair.server, b.data(), b.size(), 0), static_cast<ssize_t>(b.size()));
  uint8_t byte;
  EXPECT_EQ(a.recv(&byte, 1, MSG_DONTWAIT).error, EPROTO);
}

TEST_F(RawHostileTest, AskingOfAPlaceThatNeverWasIsIgnored) {
  begin();
  for (uint32_t msn : {0u, 1u, 3u, 0xffff'ffffu}) {
    static uint32_t turn = 0;
    put(fpdu({.msn = ++turn}, words(DDPSOCK_RAW_ASK, msn, {1, 2, 3})));
    EXPECT_EQ(error_of_recv(), EAGAIN);
    EXPECT_TRUE(answer().empty());
  }
  EXPECT_EQ(end.s->status().state, StreamState::kOpen);
}

TEST_F(RawHostileTest, AskingAgainAfterTheAnswerIsIgnored) {
  begin();
  put(fpdu({.msn = 1}, words(DDPSOCK_RAW_ASK, 2, {1, 2, 3})));
  put(fpdu({.msn = 2}, words(DDPSOCK_RAW_ASK, 2, {1, 2, 3})));
  EXPECT_EQ(error_of_recv(), EAGAIN);
  EXPECT_EQ(answer().size(), chunk_size(8) + 3);
  EXPECT_EQ(end.send(pattern(10)).count, 10);
  EXPECT_EQ(answer(), pattern(10));
}

// Whoever does not speak of it has Sends with Solicited Event for stream, as ever.
TEST_F(RawHostileTest, WithoutTheBitItIsStream) {
  begin(DDPSOCK_FEATURE_STREAM);
  mark(1);
  EXPECT_EQ(end.recv(100), words(DDPSOCK_RAW_MARK, 0));
  const PlainReturn refused = end.s->return_to_plain(end.fd);
  EXPECT_EQ(refused.state, State::kRefused);
  EXPECT_STREQ(refused.why, "the peer's library cannot return to plain TCP");
  EXPECT_TRUE(answer().empty());
}

// Pollers and looks find it too, and nothing becomes readable by it.
TEST_F(RawHostileTest, EveryCallThatLooksDealsWithIt) {
  const std::function<void(End&)> looks[] = {
      [](End& e) { EXPECT_FALSE(e.s->is_recv_ready(e.fd)); },
      [](End& e) { EXPECT_EQ(e.s->readable(e.fd, false).count, 0); },
      [](End& e) {
        uint8_t b;
        EXPECT_EQ(e.recv(&b, 1, MSG_PEEK | MSG_DONTWAIT).error, EAGAIN);
      },
      [](End& e) {
        uint8_t b;
        EXPECT_EQ(e.recv(&b, 1, MSG_DONTWAIT).error, EAGAIN);
      }};
  for (const auto& look : looks) {
    RawHostileTest_EveryCallThatLooksDealsWithIt_Test one;
    one.begin();
    one.put(fpdu({.msn = 1}, words(DDPSOCK_RAW_ASK, 2, pattern(7))));
    look(one.end);
    EXPECT_FALSE(kernel_says_readable(one.end.fd));
    EXPECT_EQ(one.answer().size(), chunk_size(8) + 7);
  }
}

// A thread in a recv call that waits.
class SleepingReader {
 public:
  explicit SleepingReader(End& end)
      : sleeper_([this, &end] {
          // Room for a marker at one read.
          uint8_t bytes[100];
          io_ = end.recv(bytes, sizeof bytes);
        }) {}
  // Also lets a tick go by, in which a number is taken for the one it was.
  void await_sleep() const {
    sleeper_.await_calm();
    for (const Time now = base::coarse_now(); base::coarse_now() == now;) usleep(500);
  }
  Io result() {
    sleeper_.join();
    return io_;
  }

 private:
  Io io_{};
  Sleeper<std::function<void()>> sleeper_;
};

TEST_F(RawHostileTest, AMarkerForANumberThatIsGone) {
  begin();
  put(fpdu({.msn = 1}, words(DDPSOCK_RAW_ASK, 2)));
  EXPECT_EQ(error_of_recv(), EAGAIN);
  TcpPair other;
  SleepingReader reader(end);
  reader.await_sleep();
  ASSERT_EQ(dup2(other.client, end.fd), end.fd);
  mark(2);
  EXPECT_EQ(reader.result().error, EBADF);
  EXPECT_EQ(end.s->status().state, StreamState::kTurning);
}

TEST_F(RawHostileTest, WhatComesTwiceForANumberThatIsGone) {
  begin();
  put(fpdu({.opcode = RDMAP_OP_SEND}, pattern(10)));
  EXPECT_EQ(end.s->return_to_plain(end.fd).state, State::kPending);
  EXPECT_EQ(end.recv(10), pattern(10));
  EXPECT_EQ(answer().size(), chunk_size(8 + 10));
  TcpPair other;
  SleepingReader reader(end);
  reader.await_sleep();
  mark(2, 10);
  Buffer reply(chunk_size(8));
  ASSERT_EQ(::recv(tcp.client, reply.data(), reply.size(), MSG_WAITALL),
            static_cast<ssize_t>(reply.size()));
  reader.await_sleep();
  ASSERT_EQ(dup2(other.client, end.fd), end.fd);
  put(pattern(10));
  EXPECT_EQ(reader.result().error, EBADF);
  EXPECT_EQ(end.s->status().state, StreamState::kTurning);
}

TEST_F(RawHostileTest, NothingIsAskedOfAnotherSocket) {
  begin();
  TcpPair other;
  put(fpdu({.opcode = RDMAP_OP_SEND}, pattern(10)));
  EXPECT_EQ(end.recv(4).size(), 4u);
  ASSERT_EQ(dup2(other.client, end.fd), end.fd);
  end.s->return_to_plain(end.fd);
  EXPECT_FALSE(kernel_says_readable(other.server));
}

// A question that came at a bad time is not kept by who could not answer it.
TEST_F(RawHostileTest, AQuestionIsRepeated) {
  begin();
  EXPECT_EQ(end.s->return_to_plain(end.fd).state, State::kPending);
  const Buffer first = answer();
  EXPECT_EQ(first.size(), chunk_size(8));
  Buffer second;
  for (int i = 0; i < 2000 && second.empty(); ++i) {
    usleep(1000);
    EXPECT_EQ(end.s->return_to_plain(end.fd).state, State::kPending);
    second = answer();
  }
  ASSERT_EQ(second.size(), first.size());
  EXPECT_EQ(base::load_be32(&second[kChunkHeader]), DDPSOCK_RAW_ASK);
}

// Like TCP's, a call counts SO_RCVTIMEO from when it began to wait.
TEST_F(RawHostileTest, WhatComesTwiceSlowlyDoesNotProlongTheCall) {
  begin();
  constexpr size_t kRepeated = 40;
  put(fpdu({.opcode = RDMAP_OP_SEND}, pattern(kRepeated)));
  EXPECT_EQ(end.s->return_to_plain(end.fd).state, State::kPending);
  EXPECT_EQ(end.recv(kRepeated), pattern(kRepeated));
  mark(2, kRepeated);
  const timeval limit{.tv_sec = 0, .tv_usec = 200'000};
  setsockopt(end.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::atomic<bool> is_over = false;
  std::thread peer([&] {
    for (size_t i = 0; i <= kRepeated && !is_over; ++i) {
      put({'x'});
      usleep(50'000);
    }
  });
  uint8_t byte;
  EXPECT_EQ(end.recv(&byte, 1).error, EAGAIN);
  is_over = true;
  peer.join();
}

// The kernel says once that the peer is gone: when the answer is sent, which the program knows
// nothing of. Who looks for bytes is told, as by TCP, and no call takes it for an end.
TEST_F(RawHostileTest, AResetThatAnAnswerMetIsToldWhereTheEndIs) {
  for (const bool is_mark : {true, false}) {
    for (const int flags : {0, int{MSG_PEEK}}) {
      RawHostileTest_AResetThatAnAnswerMetIsToldWhereTheEndIs_Test one;
      one.begin();
      one.put(fpdu({.opcode = RDMAP_OP_SEND}, pattern(10)));
      if (is_mark) {
        one.mark(2);
        one.put(pattern(5));
      } else {
        one.put(fpdu({.msn = 2}, words(DDPSOCK_RAW_ASK, 2)));
      }
      const linger reset{.l_onoff = 1, .l_linger = 0};
      setsockopt(one.tcp.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      one.tcp.close_client();
      Buffer b(10);
      EXPECT_EQ(one.end.recv(10), pattern(10));
      if (is_mark) {
        EXPECT_EQ(one.end.recv(b.data(), 5, MSG_PEEK).count, 5);
        EXPECT_EQ(one.end.recv(5), pattern(5));
      }
      EXPECT_EQ(one.end.recv(b.data(), 10, flags).error, ECONNRESET) << is_mark << ' ' << flags;
      EXPECT_EQ(one.end.recv(b.data(), 10, flags).count, 0) << "once, like TCP";
      EXPECT_EQ(one.end.recv(b.data(), 10).error, 0);
    }
  }
}

// The kernel told a send of it that had bytes to count: the next one says it, also if the peer's
// marker is read in between.
TEST_F(RawHostileTest, AnErrorThatASendHasKeptIsToldBeforeAllIsPlain) {
  begin();
  static int sends;
  sends = 0;
  static const auto real = base::sys.sendmsg;
  base::sys.sendmsg = [](int fd, const msghdr* m, int flags) -> ssize_t {
    if (++sends == 1) return ::sendmsg(fd, m, flags);
    errno = ECONNRESET;
    return -1;
  };
  const Buffer much = pattern(1 << 20);
  const ssize_t sent = end.send(much, MSG_DONTWAIT).count;
  base::sys.sendmsg = real;
  EXPECT_GT(sent, 0);
  EXPECT_LT(sent, static_cast<ssize_t>(much.size()));
  while (!answer().empty()) continue;
  mark(1);
  EXPECT_EQ(error_of_recv(), EAGAIN);
  EXPECT_EQ(end.send(much, MSG_DONTWAIT).error, ECONNRESET);
  EXPECT_EQ(error_of_recv(), EPROTOTYPE) << "once";
}

// The kernel has cut the marker that answers the peer's, and the rest meets a reset.
TEST_F(RawHostileTest, AResetThatTheRestOfAMarkerMeetsIsToldByTheSend) {
  begin();
  static const auto real = base::sys.sendmsg;
  base::sys.sendmsg = [](int fd, const msghdr* m, int flags) -> ssize_t {
    base::sys.sendmsg = real;
    return ::send(fd, m->msg_iov[0].iov_base, 10, flags);
  };
  mark(1);
  EXPECT_EQ(error_of_recv(), EAGAIN);
  base::sys.sendmsg = real;
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(tcp.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  tcp.close_client();
  static int signals;
  signals = 0;
  signal(SIGPIPE, [](int) { ++signals; });
  EXPECT_EQ(end.send(pattern(10)).error, ECONNRESET);
  EXPECT_EQ(signals, 0);
  EXPECT_EQ(end.send(pattern(10)).error, EPIPE);
  EXPECT_EQ(signals, 1);
  signal(SIGPIPE, SIG_DFL);
}

// What was being sent was plain: there is nothing that the others could not go on with.
TEST_F(RawHostileTest, ARelativeThatIsKilledInAPlainSend) {
  begin();
  put(fpdu({.msn = 1}, words(DDPSOCK_RAW_ASK, 2)));
  EXPECT_EQ(error_of_recv(), EAGAIN);
  const pid_t child = fork();
  if (child == 0) {
    for (const Buffer much(1 << 20);;) end.send(much);
  }
  for (int calm = 0; calm < 5; usleep(2000)) calm = is_asleep(child) ? calm + 1 : 0;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  while (!answer().empty()) continue;
  EXPECT_EQ(end.send(pattern(10)).count, 10);
}

// Processes that share one end, of which one asks, and is killed at any time.
TEST_F(RawHostileTest, ARelativeThatIsKilledMeanwhile) {
  const char* asked = getenv("DDPSOCK_KILLS");
  const int kills = asked != nullptr ? atoi(asked) : 30;
  int whole = 0;
  for (int i = 0; i < kills; ++i) {
    TcpPair pair;
    End a(pair.client, Role::kInitiator), b(pair.server, Role::kResponder);
    ASSERT_EQ(a.send(pattern(10)).count, 10);
    ASSERT_EQ(b.recv(10).size(), 10u);
    ASSERT_EQ(b.send(pattern(10)).count, 10);
    ASSERT_EQ(a.recv(10).size(), 10u);
    ASSERT_EQ(b.send(pattern(777)).count, 777);
    const pid_t child = fork();
    if (child == 0) {
      for (;;) a.s->return_to_plain(a.fd);
    }
    usleep(static_cast<useconds_t>(i * 13 % 500));
    std::thread peer([&] {
      for (int k = 0; k < 50; ++k) b.s->is_recv_ready(b.fd);
    });
    usleep(static_cast<useconds_t>(i * 7 % 60));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    peer.join();
    // All of it, or an error: never less, and nothing twice.
    Buffer got;
    while (got.size() < 777) {
      Buffer part(5000);
      Io io = a.recv(part.data(), part.size());
      if (io.error == EPROTOTYPE) io = Io::ok(::recv(a.fd, part.data(), part.size(), 0));
      if (io.error == ECONNRESET) break;
      ASSERT_GT(io.count, 0) << strerror(io.error);
      got.insert(got.end(), part.begin(), part.begin() + io.count);
    }
    if (got.size() == 777) ++whole;
    const Buffer all = pattern(777);
    ASSERT_LE(got.size(), all.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin()));
  }
  EXPECT_GT(whole, 0);
}

// What the program has set is the kernel's to keep again.
TEST(ReturnToPlain, OfAPeerThatHasNotBegunGivesTheLowWaterMarkBack) {
  TcpPair tcp;
  End end(tcp.server, Role::kResponder);
  end.s->set_receive_low_water(50);
  tcp.close_client();
  EXPECT_EQ(end.s->return_to_plain(end.fd).state, State::kPlain);
  int mark = 0;
  socklen_t size = sizeof mark;
  getsockopt(end.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &size);
  EXPECT_EQ(mark, 50);
}

TEST(ReturnToPlain, OfAPeerThatResetBeforeItsFirstWordLeavesTheErrorToTheProgram) {
  TcpPair tcp;
  End end(tcp.server, Role::kResponder);
  const linger reset{1, 0};
  setsockopt(tcp.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  tcp.close_client();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(end.s->return_to_plain(end.fd).state, State::kPlain);
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(end.fd, SOL_SOCKET, SO_ERROR, &error, &size);
  EXPECT_EQ(error, ECONNRESET);
}

TEST_F(RawHostileTest, TheLowWaterMarkCountsWhatLiesBehindTheMarker) {
  begin();
  put(fpdu({.opcode = RDMAP_OP_SEND}, pattern(100)));
  mark(2);
  end.s->set_receive_low_water(150);
  EXPECT_FALSE(end.s->is_recv_ready(end.fd));
  Buffer got(1000);
  Sleeper reader([&] {
    const Io io = end.recv(got.data(), got.size());
    got.resize(static_cast<size_t>(std::max<ssize_t>(io.count, 0)));
  });
  put(pattern(20, 2));
  put(pattern(30, 3));
  reader.join();
  EXPECT_EQ(got.size(), 150u);
}

// A call that has lowered it for the rest, and is cancelled in its sleep.
TEST_F(RawHostileTest, TheLowWaterMarkIsTheProgramsAgainBehindACancelledCall) {
  begin();
  put(fpdu({.opcode = RDMAP_OP_SEND}, pattern(100)));
  mark(2);
  end.s->set_receive_low_water(150);
  const auto kernels = [&] {
    int size = 0;
    socklen_t length = sizeof size;
    getsockopt(end.fd, SOL_SOCKET, SO_RCVLOWAT, &size, &length);
    return size;
  };
  pthread_t reader;
  const auto receive = [](void* test) -> void* {
    Buffer got(1000);
    static_cast<End*>(test)->recv(got.data(), got.size());
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&reader, nullptr, receive, &end), 0);
  for (int i = 0; i < 2000 && kernels() != 50; ++i) usleep(1000);
  EXPECT_EQ(kernels(), 50);
  pthread_cancel(reader);
  pthread_join(reader, nullptr);
  EXPECT_EQ(kernels(), 150);
}

}  // namespace
}  // namespace ddpsock::engine
