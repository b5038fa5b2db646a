// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a stream ends: what is flushed, what is finished first, and when memory is given back.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rdmap/pair.h"

namespace ddpsock::rdmap::test {
namespace {

std::vector<WorkStatus> statuses(const std::vector<Completion>& done) {
  std::vector<WorkStatus> out;
  for (const Completion& c : done) out.push_back(c.status);
  return out;
}
using S = std::vector<WorkStatus>;
constexpr WorkStatus kOk = WorkStatus::kOk;
constexpr WorkStatus kFlushed = WorkStatus::kFlushed;

TEST(QpEnd, LostFlushesEverythingOnceInOrder) {
  Pair p;
  std::vector<uint8_t> in(10), local(8);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  for (uint64_t i = 0; i < 3; ++i) p.a.recv(i, in);
  p.a.output();
  p.a.send_text(10, "sent");
  p.a.output();
  p.a.send({.id = 11, .op = op::Read{ours, 0, 8, 1, 0}});
  p.a.output();
  p.a.send({.id = 12, .op = op::Send{}, .is_signalled = false});
  p.a.qp.on_llp_end(LlpEnd::kLost);
  EXPECT_EQ(p.a.qp.state(), QpState::kEnded);
  EXPECT_EQ(p.a.qp.terminate_info().reason, EndReason::kLlpLost);
  EXPECT_EQ(statuses(p.a.sends()), (S{kOk, kFlushed, kFlushed})) << "unsignalled failures show";
  EXPECT_EQ(statuses(p.a.receives()), (S{kFlushed, kFlushed, kFlushed}));
  EXPECT_TRUE(p.a.stags.deregister(ours)) << "no pin is left";
  EXPECT_EQ(p.a.send_text(13, "x").reason, Refusal::kBadState);
  EXPECT_EQ(p.a.recv(14, in).reason, Refusal::kBadState);
  EXPECT_TRUE(p.a.qp.wants_close());
  p.a.qp.on_llp_end(LlpEnd::kLost);
  EXPECT_TRUE(p.a.sends().empty());
}

TEST(QpEnd, Trap33FinBetweenFpdusIsOrderlyAndLetsSendsFinish) {
  Pair p;
  std::vector<uint8_t> in(10);
  p.a.recv(1, in);
  p.a.output();
  p.a.send_text(2, "last words");
  p.a.qp.on_llp_end(LlpEnd::kFinBetween);
  EXPECT_EQ(p.a.qp.state(), QpState::kClosing);
  EXPECT_EQ(statuses(p.a.receives()), (S{kFlushed}));
  EXPECT_FALSE(p.a.qp.wants_close());
  EXPECT_EQ(p.a.output().size(), 1u);
  EXPECT_EQ(statuses(p.a.sends()), (S{kOk}));
  EXPECT_EQ(p.a.qp.state(), QpState::kEnded);
  EXPECT_EQ(p.a.qp.terminate_info().reason, EndReason::kOrderly);
}

// The peer never sent the FPDU for which a responder waits, and now it cannot any more.
TEST(QpEnd, Trap3FinBeforeTheFirstFpduFlushesTheRespondersSends) {
  Endpoint b;
  b.qp.start({false, Rtr::kNone, 4, 4});
  b.send_text(1, "too early");
  b.qp.on_llp_end(LlpEnd::kFinBetween);
  EXPECT_EQ(b.qp.state(), QpState::kEnded);
  EXPECT_EQ(b.qp.terminate_info().reason, EndReason::kLlpLost);
  EXPECT_EQ(statuses(b.sends()), (S{kFlushed}));
}

TEST(QpEnd, Trap33FinInsideAnFpduIsALoss) {
  Pair p;
  p.a.output();
  p.a.qp.on_llp_end(LlpEnd::kFinInside);
  EXPECT_EQ(p.a.qp.terminate_info().reason, EndReason::kLlpLost);
}

TEST(QpEnd, FinWithAReadOutstandingOrAMessageCutIsALoss) {
  Pair p;
  std::vector<uint8_t> local(8), in(100);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  p.a.send({.op = op::Read{ours, 0, 8, 1, 0}});
  p.a.output();
  p.a.qp.on_llp_end(LlpEnd::kFinBetween);
  EXPECT_EQ(p.a.qp.terminate_info().reason, EndReason::kLlpLost);
  EXPECT_EQ(statuses(p.a.sends()), (S{kFlushed}));

  Pair q;
  q.b.recv(1, in);
  q.a.send_text(1, std::string(90, 'x'));
  const auto out = q.a.output(68);
  q.b.input(out[0]);
  q.b.input(out[1]);
  q.b.qp.on_llp_end(LlpEnd::kFinBetween);
  EXPECT_EQ(q.b.qp.terminate_info().reason, EndReason::kLlpLost);
  EXPECT_EQ(statuses(q.b.receives()), (S{kFlushed}));
}

TEST(QpEnd, CloseDrainsAnswersReadsAndThenBothEndInOrder) {
  Pair p;
  std::vector<uint8_t> remote(64, 3), local(64), in(10);
  const uint32_t theirs = p.b.reg(remote, kRemoteRead), ours = p.a.reg(local, kLocalWrite);
  p.b.recv(1, in);
  p.a.send({.op = op::Read{ours, 0, 64, theirs, 0}});
  p.a.send_text(2, "bye");
  p.a.qp.close();
  EXPECT_EQ(p.a.send_text(3, "late").reason, Refusal::kBadState);
  EXPECT_FALSE(p.a.qp.wants_close());
  p.run();
  EXPECT_EQ(statuses(p.a.sends()), (S{kOk, kOk}));
  EXPECT_TRUE(p.a.qp.wants_close());
  p.b.qp.on_llp_end(LlpEnd::kFinBetween);
  EXPECT_EQ(p.b.qp.state(), QpState::kEnded);
  p.a.qp.on_llp_end(LlpEnd::kFinBetween);
  EXPECT_EQ(p.a.qp.state(), QpState::kEnded);
  EXPECT_EQ(p.a.qp.terminate_info().reason, EndReason::kOrderly);
  EXPECT_EQ(p.b.qp.terminate_info().reason, EndReason::kOrderly);
}

TEST(QpEnd, Trap31ATerminateWaitsForNothingButKeepsMemoryTheLlpHolds) {
  Endpoint e;
  e.qp.start({true, Rtr::kNone, 4, 4});
  const std::string text(300, 'x');
  e.send_text(1, text);
  e.send_text(2, text);
  ddp::Segment s;
  ASSERT_TRUE(e.qp.next_segment(218, s));  // half of message 1 is in the LLP's hands
  e.qp.terminate(TermCode::mpa(RDMAP_ECODE_MPA_LOCAL));
  EXPECT_TRUE(e.sends().empty()) << "the LLP may still read message 1";
  ddp::Segment term;
  ASSERT_TRUE(e.qp.next_segment(218, term));
  EXPECT_EQ(ddp::UntaggedView::parse(term.header())->qn(), 2u);
  EXPECT_FALSE(e.qp.next_segment(218, term));
  EXPECT_FALSE(e.qp.wants_close());
  e.qp.segments_sent(1);
  EXPECT_EQ(statuses(e.sends()), (S{kFlushed, kFlushed}));
  EXPECT_FALSE(e.qp.wants_close());
  e.qp.segments_sent(1);
  EXPECT_TRUE(e.qp.wants_close());
}

TEST(QpEnd, AReceiveBufferIsNotGivenBackWhileItIsBeingFilled) {
  Pair p;
  std::vector<uint8_t> in(10);
  p.b.recv(1, in);
  p.a.send_text(1, "hello");
  const auto out = p.a.output();
  p.b.input(out[0]);
  ASSERT_TRUE(p.b.qp.place(out[1], static_cast<uint32_t>(out[1].size())));
  p.b.qp.terminate(TermCode::mpa(RDMAP_ECODE_MPA_LOCAL));
  EXPECT_TRUE(p.b.receives().empty());
  p.b.qp.segment_placed();
  EXPECT_EQ(statuses(p.b.receives()), (S{kFlushed})) << "failed before it was whole";
}

TEST(QpEnd, AWrittenRegionIsPinnedWhileASegmentIsOpen) {
  Pair p;
  std::vector<uint8_t> region(10);
  const uint32_t stag = p.b.reg(region, kRemoteWrite);
  const std::string text = "hello";
  const Bytes range = bytes_of(text);
  p.a.send({.op = op::Write{.payload = {&range, 1}, .stag = stag}});
  const auto out = p.a.output();
  p.b.input(out[0]);
  ASSERT_TRUE(p.b.qp.place(out[1], static_cast<uint32_t>(out[1].size())));
  EXPECT_EQ(p.b.stags.deregister(stag).error(), DeregisterError::kInUse);
  p.b.qp.segment_placed();
  EXPECT_TRUE(p.b.stags.deregister(stag));
}

TEST(QpEnd, DestructionReleasesSlotsAndPins) {
  StagTable stags(4);
  CompletionQueue cq(8);
  std::vector<uint8_t> memory(64), in(8);
  const auto stag = stags.register_region({{0, memory}, kLocalWrite, 7, kAnyQp});
  ASSERT_TRUE(stag);
  {
    Qp qp(QpAttr{.number = 1, .pd = 7}, stags, cq, cq);
    ASSERT_TRUE(qp.has_memory());
    qp.start({true, Rtr::kNone, 1, 1});
    const SendWr wr{.op = op::Read{*stag, 0, 64, 1, 0}};
    ASSERT_EQ(qp.post_send({&wr, 1}).accepted, 1u);
    const MutBytes range(in);
    const RecvWr recv{1, {&range, 1}};
    for (int i = 0; i < 7; ++i) ASSERT_EQ(qp.post_recv({&recv, 1}).accepted, 1u);
    EXPECT_FALSE(cq.reserve());
    ddp::Segment s;
    ASSERT_TRUE(qp.next_segment(kMulpdu, s));
  }
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(cq.reserve());
  EXPECT_TRUE(stags.deregister(*stag));
}

TEST(QpEnd, AResponderThatHasReceivedNothingCannotSendATerminate) {
  Pair p;
  p.b.qp.terminate(TermCode::mpa(RDMAP_ECODE_MPA_RTR));
  EXPECT_FALSE(p.b.qp.has_output());
  EXPECT_TRUE(p.b.qp.wants_close());
  p.a.qp.terminate(TermCode::mpa(RDMAP_ECODE_MPA_IRD));
  EXPECT_EQ(p.a.output().size(), 1u) << "the initiator may";
}

TEST(QpEnd, FinBeforeAPostedReadHasGoneOutIsALoss) {
  Pair p;
  std::vector<uint8_t> local(8);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  p.a.output();
  p.a.send({.op = op::Read{ours, 0, 8, 1, 0}});
  p.a.qp.on_llp_end(LlpEnd::kFinBetween);
  EXPECT_EQ(p.a.qp.state(), QpState::kEnded);
  EXPECT_EQ(p.a.qp.terminate_info().reason, EndReason::kLlpLost);
  EXPECT_EQ(statuses(p.a.sends()), (S{kFlushed}));
}

}  // namespace
}  // namespace ddpsock::rdmap::test
