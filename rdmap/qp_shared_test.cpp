// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs that draw their receives from one queue: who gets which, what is told of it, and that
// neither an end nor a hostile peer costs others their receives.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rdmap/pair.h"
#include "rdmap/shared_receives.h"

namespace ddpsock::rdmap::test {
namespace {

constexpr uint32_t kDepth = 8;

// Two responders that share receives and a completion queue, each with a peer.
struct Shared {
  explicit Shared(ddp::LlpOrder order = ddp::LlpOrder::kInOrder, uint32_t cq_depth = 64)
      : send_cq(64), recv_cq(cq_depth), stags(16), receives(kDepth, recv_cq) {
    for (uint32_t i = 0; i < 2; ++i) {
      const QpAttr attr{.number = i + 10, .pd = 7, .order = order};
      own.push_back(std::make_unique<Qp>(attr, stags, send_cq, recv_cq, &receives));
      peers.push_back(std::make_unique<Endpoint>(QpAttr{.number = 1, .pd = 7, .order = order}));
      EXPECT_TRUE(own[i]->has_memory());
      own[i]->start({false, Rtr::kNone, 4, 4});
      peers[i]->qp.start({true, Rtr::kNone, 4, 4});
    }
  }
  Posted recv(uint64_t id, MutBytes to) {
    const RecvWr wr{id, {&to, 1}};
    return receives.post({&wr, 1});
  }
  void post(uint32_t count) {
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(recv(i, memory[i]).accepted, 1u);
  }
  std::optional<TermCode> input(uint32_t to, const Ulpdu& u) {
    const auto p = own[to]->place(u, static_cast<uint32_t>(u.size()));
    if (!p) return p.error();
    const uint8_t* from = u.data() + p->header_length;
    for (const MutBytes& r : p->spans.ranges()) {
      std::copy_n(from, r.size(), r.begin());
      from += r.size();
    }
    own[to]->segment_placed();
    return std::nullopt;
  }
  std::vector<Ulpdu> message(uint32_t from, const std::string& text, uint32_t mulpdu = kMulpdu) {
    peers[from]->send_text(0, text);
    return peers[from]->output(mulpdu);
  }
  std::vector<Completion> done() {
    std::vector<Completion> out(64);
    out.resize(recv_cq.poll(out));
    return out;
  }
  std::string text_at(size_t i, size_t size) {
    return {reinterpret_cast<const char*>(memory[i].data()), size};
  }

  std::array<std::array<uint8_t, 200>, kDepth> memory{};
  CompletionQueue send_cq, recv_cq;
  StagTable stags;
  SharedReceives receives;
  std::vector<std::unique_ptr<Qp>> own;
  std::vector<std::unique_ptr<Endpoint>> peers;
};

TEST(QpShared, WhoeverHasAMessageTakesTheOldest) {
  Shared s;
  s.post(4);
  for (const uint32_t from : {1u, 0u, 0u, 1u}) {
    for (const Ulpdu& u : s.message(from, "from " + std::to_string(from))) {
      ASSERT_FALSE(s.input(from, u));
    }
  }
  const auto done = s.done();
  ASSERT_EQ(done.size(), 4u);
  const std::array<uint32_t, 4> expected{11, 10, 10, 11};
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(done[i].id, i);
    EXPECT_EQ(done[i].qp, expected[i]);
    EXPECT_TRUE(done[i].is_shared);
    EXPECT_EQ(done[i].length, 6u);
    EXPECT_EQ(s.text_at(i, 6), "from " + std::to_string(expected[i] - 10));
  }
  EXPECT_EQ(s.receives.size(), 0u);
}

TEST(QpShared, InterleavedMessagesKeepTheirReceives) {
  Shared s;
  s.post(2);
  const auto first = s.message(0, std::string(150, 'a'), 128);
  const auto second = s.message(1, std::string(150, 'b'), 128);
  ASSERT_EQ(first.size(), 2u);
  ASSERT_FALSE(s.input(0, first[0]));
  ASSERT_FALSE(s.input(1, second[0]));
  ASSERT_FALSE(s.input(1, second[1]));
  ASSERT_FALSE(s.input(0, first[1]));
  const auto done = s.done();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].id, 1u) << "whole first, although its receive was posted later";
  EXPECT_EQ(done[1].id, 0u);
  EXPECT_EQ(s.text_at(0, 150), std::string(150, 'a'));
  EXPECT_EQ(s.text_at(1, 150), std::string(150, 'b'));
}

TEST(QpShared, AMessageThatFindsNoneEndsItsConnectionAlone) {
  Shared s;
  s.post(1);
  ASSERT_FALSE(s.input(0, s.message(0, "takes the only one")[0]));
  const auto error = s.input(1, s.message(1, "too late")[0]);
  ASSERT_TRUE(error);
  EXPECT_EQ(*error, TermCode::ddp(ddp::Error::kNoBuffer));
  EXPECT_EQ(s.own[1]->state(), QpState::kTerminate);
  EXPECT_EQ(s.own[0]->state(), QpState::kRts);
  EXPECT_EQ(s.done().size(), 1u);
  s.post(1);
  EXPECT_FALSE(s.input(0, s.message(0, "goes on")[0]));
}

TEST(QpShared, AnEndFlushesWhatWasTakenOnceAndNothingElse) {
  Shared s;
  s.post(3);
  const auto cut = s.message(0, std::string(150, 'x'), 128);
  ASSERT_FALSE(s.input(0, cut[0]));
  EXPECT_EQ(s.receives.size(), 2u);
  s.own[0]->on_llp_end(LlpEnd::kLost);
  s.own[0]->on_llp_end(LlpEnd::kLost);
  const auto done = s.done();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, 0u);
  EXPECT_EQ(done[0].status, WorkStatus::kFlushed);
  EXPECT_TRUE(done[0].is_shared);
  EXPECT_EQ(s.receives.size(), 2u);
  ASSERT_FALSE(s.input(1, s.message(1, "alive")[0]));
  EXPECT_EQ(s.done().size(), 1u);
}

TEST(QpShared, ATooLongMessageCostsTheReceiveItTook) {
  Shared s;
  s.post(2);
  EXPECT_EQ(s.input(0, s.message(0, std::string(201, 'x'))[0]),
            TermCode::ddp(ddp::Error::kTooLong));
  const auto done = s.done();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WorkStatus::kFlushed);
  EXPECT_EQ(s.receives.size(), 1u);
}

// In any order, the header of a message far ahead must not cost a receive for each before it.
TEST(QpShared, SegmentsAheadTakeOneReceiveAMessage) {
  Shared s(ddp::LlpOrder::kAnyOrder);
  s.post(kDepth);
  std::vector<Ulpdu> all;
  for (int i = 0; i < 6; ++i) all.push_back(s.message(0, "message " + std::to_string(i))[0]);
  ASSERT_FALSE(s.input(0, all[5]));
  EXPECT_EQ(s.receives.size(), kDepth - 1);
  EXPECT_TRUE(s.done().empty());
  ASSERT_FALSE(s.input(0, all[5])) << "a repeat";
  EXPECT_EQ(s.receives.size(), kDepth - 1);
  for (const int i : {3, 1, 0, 2, 4}) ASSERT_FALSE(s.input(0, all[static_cast<size_t>(i)]));
  const auto done = s.done();
  ASSERT_EQ(done.size(), 6u) << "delivered in order all the same";
  const std::array<uint64_t, 6> ids{3, 2, 4, 1, 5, 0};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(done[i].id, ids[i]);
    EXPECT_EQ(s.text_at(ids[i], 9), "message " + std::to_string(i));
  }
}

TEST(QpShared, AnEmptyMessageNeedsAReceiveToo) {
  Shared s(ddp::LlpOrder::kAnyOrder);
  s.post(1);
  const auto first = s.message(0, ""), second = s.message(0, "");
  ASSERT_FALSE(s.input(0, second[0]));
  EXPECT_EQ(s.input(0, first[0]), TermCode::ddp(ddp::Error::kNoBuffer));
  EXPECT_EQ(s.done().size(), 1u) << "the one taken, flushed";
}

TEST(QpShared, SegmentsBeyondTheWindowTakeNothing) {
  Shared s(ddp::LlpOrder::kAnyOrder);
  s.post(2);
  std::vector<Ulpdu> all;
  for (int i = 0; i < 65; ++i) all.push_back(s.message(0, "x")[0]);
  EXPECT_EQ(s.input(0, all[64]), TermCode::ddp(ddp::Error::kNoBuffer)) << "recv_depth is 64";
  EXPECT_EQ(s.receives.size(), 2u);
  EXPECT_TRUE(s.done().empty());
  s.own[0]->on_llp_end(LlpEnd::kLost);
  EXPECT_TRUE(s.done().empty());
}

TEST(QpShared, EveryReceiveKeepsItsCompletionSlot) {
  Shared s(ddp::LlpOrder::kInOrder, 3);
  s.post(3);
  EXPECT_EQ(s.recv(3, s.memory[3]).reason, Refusal::kCqFull);
  ASSERT_FALSE(s.input(0, s.message(0, "one")[0]));
  EXPECT_EQ(s.recv(3, s.memory[3]).reason, Refusal::kCqFull) << "completed, but not polled";
  EXPECT_EQ(s.done().size(), 1u);
  EXPECT_EQ(s.recv(3, s.memory[3]).accepted, 1u);
  s.receives.close();
  EXPECT_TRUE(s.done().empty());
  EXPECT_EQ(s.recv(3, s.memory[3]).reason, Refusal::kBadState);
  uint32_t slots = 0;
  while (s.recv_cq.reserve()) ++slots;
  EXPECT_EQ(slots, 3u) << "closing gives the slots back";
}

TEST(QpShared, ADestroyedQueuePairGivesItsSlotBack) {
  Shared s(ddp::LlpOrder::kAnyOrder, 3);
  s.post(3);
  s.message(0, "never comes");
  ASSERT_FALSE(s.input(0, s.message(0, "comes early")[0]));
  s.own.erase(s.own.begin());
  s.receives.close();
  uint32_t slots = 0;
  while (s.recv_cq.reserve()) ++slots;
  EXPECT_EQ(slots, 3u);
}

TEST(QpShared, RefusesReceivesOfItsOwnAndBadOnes) {
  Shared s;
  const RecvWr wr{};
  EXPECT_EQ(s.own[0]->post_recv({&wr, 1}).reason, Refusal::kBadState);
  const std::vector<MutBytes> many(9, MutBytes(s.memory[0]));
  const std::array<RecvWr, 2> works{RecvWr{}, RecvWr{1, many}};
  const Posted posted = s.receives.post(works);
  EXPECT_EQ(posted.accepted, 1u);
  EXPECT_EQ(posted.reason, Refusal::kTooManySlices);
  s.post(kDepth - 1);
  EXPECT_EQ(s.recv(9, {}).reason, Refusal::kQueueFull);
}

TEST(QpShared, TheLimitIsToldOnce) {
  Shared s;
  s.post(3);
  s.receives.set_limit(3);
  EXPECT_FALSE(s.receives.take_event()) << "three are not fewer than three";
  s.input(0, s.message(0, "x")[0]);
  EXPECT_TRUE(s.receives.take_event());
  s.input(0, s.message(0, "x")[0]);
  EXPECT_FALSE(s.receives.take_event());
  s.receives.set_limit(2);
  EXPECT_TRUE(s.receives.take_event()) << "fewer already";
  s.receives.set_limit(0);
  s.input(0, s.message(0, "x")[0]);
  EXPECT_FALSE(s.receives.take_event());
}

TEST(QpShared, ImmediateDataTakesAReceiveAndAnRtrSendDoesNot) {
  Shared s;
  s.post(2);
  s.peers[0]->send({.op = op::Immediate{42, false}});
  ASSERT_FALSE(s.input(0, s.peers[0]->output()[0]));
  const auto done = s.done();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].immediate, 42u);

  Qp b(QpAttr{.number = 5, .pd = 7}, s.stags, s.send_cq, s.recv_cq, &s.receives);
  b.start({false, Rtr::kSend, 1, 1});
  Endpoint a;
  a.qp.start({true, Rtr::kSend, 1, 1});
  const auto rtr = a.output();
  ASSERT_EQ(rtr.size(), 1u);
  ASSERT_TRUE(b.place(rtr[0], static_cast<uint32_t>(rtr[0].size())));
  b.segment_placed();
  EXPECT_EQ(s.receives.size(), 1u);
}

}  // namespace
}  // namespace ddpsock::rdmap::test
