// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who speaks first, and the frame that says so.
#include <gtest/gtest.h>

#include <vector>

#include "rdmap/pair.h"

namespace ddpsock::rdmap::test {
namespace {

class QpRtrKinds : public testing::TestWithParam<Rtr> {};

TEST_P(QpRtrKinds, Trap8RtrConsumesNoReceiveNoCompletionAndNoStagCheck) {
  Pair p(QpAttr{.number = 1, .pd = 7}, 0, GetParam());  // IRD and ORD 0 on both sides
  std::vector<uint8_t> in(10);
  p.b.recv(1, in);
  p.b.send_text(5, "server");
  EXPECT_TRUE(p.b.output().empty()) << "the responder waits for the first FPDU";
  std::vector<uint8_t> back(10);
  p.a.recv(2, back);
  p.run();
  EXPECT_EQ(p.a.receives().size(), 1u);
  EXPECT_TRUE(p.b.receives().empty());
  p.a.send_text(6, "client");
  p.run();
  EXPECT_EQ(p.b.receives().size(), 1u);
  EXPECT_EQ(p.a.sends().size(), 1u);
  EXPECT_EQ(p.a.qp.state(), QpState::kRts);
  EXPECT_EQ(p.b.qp.state(), QpState::kRts);
}
INSTANTIATE_TEST_SUITE_P(Kinds, QpRtrKinds, testing::Values(Rtr::kSend, Rtr::kWrite, Rtr::kRead));

TEST(QpRtr, Trap8RtrFramesAreTheGoldenOnes) {
  const auto frame = [](Rtr rtr) {
    Endpoint e;
    e.qp.start({true, rtr, 0, 0});
    const auto out = e.output();
    EXPECT_EQ(out.size(), 1u);
    return out[0];
  };
  const Ulpdu write = {0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  const Ulpdu send = {0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
  EXPECT_EQ(frame(Rtr::kWrite), write);
  EXPECT_EQ(frame(Rtr::kSend), send);
  EXPECT_EQ(frame(Rtr::kRead).size(), 46u);
}

TEST(QpRtr, ATerminateLeavesAnRtrFrameInTheLlpsHandsAsItIs) {
  Endpoint e;
  e.qp.start({true, Rtr::kRead, 1, 1});
  ddp::Segment rtr, last;
  ASSERT_TRUE(e.qp.next_segment(kMulpdu, rtr));
  const Ulpdu before = Endpoint::flatten(rtr);
  e.qp.terminate(TermCode::operation(RDMAP_ECODE_UNSPECIFIED));
  ASSERT_TRUE(e.qp.next_segment(kMulpdu, last));
  EXPECT_EQ(Endpoint::flatten(rtr), before);
}

TEST(QpRtr, Trap3TheResponderSendsNothingBeforeItHasReceivedAlsoWithoutRtr) {
  Pair p(QpAttr{.number = 1, .pd = 7}, 4, Rtr::kNone);
  std::vector<uint8_t> in(10);
  p.b.recv(1, in);
  p.b.send_text(5, "server");
  EXPECT_FALSE(p.b.qp.has_output());
  p.a.send_text(1, "x");
  for (const Ulpdu& u : p.a.output()) p.b.input(u);
  EXPECT_TRUE(p.b.qp.has_output());
}

TEST(QpRtr, Trap8OnlyOneSendIsTheRtrFrame) {
  Pair p(QpAttr{.number = 1, .pd = 7}, 4, Rtr::kSend);
  std::vector<uint8_t> in(10);
  p.b.recv(1, in);
  p.a.send({.op = op::Send{}});
  p.run();
  EXPECT_EQ(p.b.receives().size(), 1u);
}

TEST(QpRtr, Trap8ASendThatIsNotEmptyIsNoRtrFrame) {
  Pair p(QpAttr{.number = 1, .pd = 7}, 4, Rtr::kNone);
  Endpoint b;
  b.qp.start({false, Rtr::kSend, 4, 4});
  std::vector<uint8_t> in(10);
  b.recv(1, in);
  p.a.send_text(1, "x");
  for (const Ulpdu& u : p.a.output()) EXPECT_FALSE(b.input(u));
  EXPECT_EQ(b.receives().size(), 1u);
}

// cxgb4 and irdma after a start-up with revision 1, which cannot agree on an RTR message.
TEST(QpRtr, Trap7AReadRtrThatNobodyAgreedOnIsServedWithoutIrd) {
  Endpoint a;
  Endpoint b;
  a.qp.start({true, Rtr::kRead, 0, 0});
  b.qp.start({false, Rtr::kNone, 0, 0});
  const auto rtr = a.output();
  for (const Ulpdu& u : rtr) EXPECT_FALSE(b.input(u));
  const auto response = b.output();
  ASSERT_EQ(response.size(), 1u);
  EXPECT_FALSE(a.input(response[0]));
  EXPECT_EQ(b.qp.state(), QpState::kRts);
  Ulpdu again = rtr[0];
  again[13] = 2;  // MSN
  EXPECT_EQ(b.input(again), TermCode::ddp(ddp::Error::kNoBuffer)) << "once";
}

TEST(QpRtr, Trap8WithoutIrdThePlaceForARtrServesNoOtherRead) {
  for (const Rtr rtr : {Rtr::kNone, Rtr::kRead}) {
    Endpoint a;
    Endpoint b;
    std::vector<uint8_t> sink(8), source(8);
    a.qp.start({true, Rtr::kNone, 1, 1});
    b.qp.start({false, rtr, 0, 0});
    a.send({.op = op::Read{a.reg(sink, kLocalWrite), 0, 8, b.reg(source, kRemoteRead), 0}});
    const auto out = a.output();
    ASSERT_EQ(out.size(), 1u);
    b.input(out[0]);
    EXPECT_EQ(b.qp.state(), QpState::kTerminate);
    EXPECT_EQ(b.qp.terminate_info().terminate.code, TermCode::ddp(ddp::Error::kNoBuffer));
  }
}

}  // namespace
}  // namespace ddpsock::rdmap::test
