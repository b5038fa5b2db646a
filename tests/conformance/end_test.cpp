// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How connections end: drained, aborted, cut.
#include <sys/eventfd.h>

#include "base/fd.h"
#include "tests/conformance/rig.h"

namespace ddpsock::conformance {
namespace {

using engine::EndReason;

TEST_P(Conformance, DrainDeliversEverythingThenEndsOrderly) {
  Rig rig(GetParam(), {.recv_depth = 16});
  const auto message = pattern(50'000);
  std::vector<std::vector<uint8_t>> buffers(8, std::vector<uint8_t>(message.size()));
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(rig.b.recv(i, buffers[i]), Refusal::kNone);
  ASSERT_EQ(rig.b.recv(8, {}), Refusal::kNone);
  ASSERT_EQ(rig.a.recv(9, {}), Refusal::kNone);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(rig.a.send(i, message), Refusal::kNone);
  rig.a.qp->drain();
  EXPECT_EQ(rig.a.send(100, message), Refusal::kBadState);
  ASSERT_TRUE(rig.run_to_end());
  ASSERT_EQ(rig.b.received.size(), 9u);
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(rig.b.received[i].status, WorkStatus::kOk);
    EXPECT_EQ(buffers[i], message);
  }
  EXPECT_EQ(rig.b.received[8].status, WorkStatus::kFlushed);
  ASSERT_EQ(rig.a.received.size(), 1u);
  EXPECT_EQ(rig.a.received[0].status, WorkStatus::kFlushed);
  ASSERT_EQ(rig.a.sent.size(), 8u);
  EXPECT_EQ(rig.a.sent[7].status, WorkStatus::kOk);
  EXPECT_EQ(rig.a.qp->terminate_info().reason, EndReason::kOrderly);
  EXPECT_EQ(rig.b.qp->terminate_info().reason, EndReason::kOrderly);
}

TEST_P(Conformance, DrainWaitsForReads) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  auto source = pattern(300'000);
  std::vector<uint8_t> sink(source.size());
  const engine::Mr from = rig.b.reg(source, rdmap::kRemoteRead);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  ASSERT_EQ(rig.a.send({.id = 1,
                        .op = op::Read{.sink_stag = to.stag,
                                       .sink_to = to.base_to,
                                       .length = 300'000,
                                       .stag = from.stag,
                                       .to = from.base_to}}),
            Refusal::kNone);
  rig.a.qp->drain();
  ASSERT_TRUE(rig.run_to_end());
  ASSERT_EQ(rig.a.sent.size(), 1u);
  EXPECT_EQ(rig.a.sent[0].status, WorkStatus::kOk);
  EXPECT_EQ(sink, source);
  EXPECT_EQ(rig.a.qp->terminate_info().reason, EndReason::kOrderly);
}

TEST_P(Conformance, BothDrainAtOnce) {
  Rig rig(GetParam());
  rig.a.qp->drain();
  rig.b.qp->drain();
  rig.a.qp->drain();
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.a.qp->terminate_info().reason, EndReason::kOrderly);
  EXPECT_EQ(rig.b.qp->terminate_info().reason, EndReason::kOrderly);
}

TEST_P(Conformance, AbortTellsThePeerWhy) {
  Rig rig(GetParam());
  std::vector<uint8_t> buffer(10);
  // Before any traffic a Terminate without headers could also be siw's form of another (trap 30).
  rig.let_responder_speak();
  ASSERT_EQ(rig.b.send({.op = op::Write{}, .is_signalled = false}), Refusal::kNone);
  rig.settle();
  ASSERT_EQ(rig.a.recv(1, buffer), Refusal::kNone);
  ASSERT_EQ(rig.b.recv(2, buffer), Refusal::kNone);
  const rdmap::TermCode why = rdmap::TermCode::operation(RDMAP_ECODE_CATASTROPHIC_STREAM);
  rig.a.qp->abort(why);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.a.qp->terminate_info().reason, EndReason::kTerminateSent);
  EXPECT_EQ(rig.b.qp->terminate_info().reason, EndReason::kTerminateReceived);
  EXPECT_EQ(rig.b.qp->terminate_info().terminate.code, why);
  ASSERT_EQ(rig.a.received.size(), 1u);
  EXPECT_EQ(rig.a.received[0].status, WorkStatus::kFlushed);
  ASSERT_EQ(rig.b.received.size(), 1u);
  EXPECT_EQ(rig.b.received[0].status, WorkStatus::kFlushed);
}

TEST_P(Conformance, AbortWithoutReasonDropsTheConnection) {
  Rig rig(GetParam());
  std::vector<uint8_t> buffer(10);
  ASSERT_EQ(rig.a.recv(1, buffer), Refusal::kNone);
  ASSERT_EQ(rig.b.recv(2, buffer), Refusal::kNone);
  ASSERT_EQ(rig.a.send(3, buffer), Refusal::kNone);
  rig.a.qp->abort(std::nullopt);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.a.qp->terminate_info().reason, EndReason::kLlpLost);
  EXPECT_EQ(rig.a.received.size(), 1u);
  EXPECT_EQ(rig.a.sent.size(), 1u);
  EXPECT_EQ(rig.b.received.size(), 1u);
  rig.a.qp->abort(std::nullopt);  // no effect
  EXPECT_EQ(rig.a.qp->state(), QpState::kEnded);
}

TEST_P(Conformance, CutConnectionFlushesBothEnds) {
  Rig rig(GetParam());
  std::vector<uint8_t> buffer(10);
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(rig.a.recv(i, buffer), Refusal::kNone);
    ASSERT_EQ(rig.b.recv(i, buffer), Refusal::kNone);
  }
  rig.bench->cut(rig.a.start.lower);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(rig.a.qp->terminate_info().reason, EndReason::kLlpLost);
  EXPECT_EQ(rig.b.qp->terminate_info().reason, EndReason::kLlpLost);
  ASSERT_EQ(rig.a.received.size(), 5u);
  ASSERT_EQ(rig.b.received.size(), 5u);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(rig.b.received[i].id, i);
    EXPECT_EQ(rig.b.received[i].status, WorkStatus::kFlushed);
  }
}

TEST_P(Conformance, PeerDiesInsideAnFpdu) {
  Rig rig(GetParam());
  if (!rig.a.has(Capability::kWireTap)) GTEST_SKIP() << "no byte stream under this engine";
  // Send of 20,000 bytes, MSN 1: its beginning.
  std::vector<uint8_t> fpdu = {0x4e, 0x32, 0x41, 0x43, 0, 0, 0, 0, 0, 0,
                               0,    0,    0,    0,    0, 1, 0, 0, 0, 0};
  fpdu.resize(12'000, 0x77);
  std::vector<uint8_t> buffer(20'000);
  ASSERT_EQ(rig.b.recv(1, buffer), Refusal::kNone);
  rig.bench->inject(rig.a.start.lower, fpdu);
  rig.settle();
  EXPECT_TRUE(rig.b.received.empty());
  rig.bench->finish(rig.a.start.lower);
  ASSERT_TRUE(rig.run_until([&] { return rig.b.qp->state() == QpState::kEnded; }));
  EXPECT_EQ(rig.b.qp->terminate_info().reason, EndReason::kLlpLost);
  ASSERT_EQ(rig.b.received.size(), 1u);
  EXPECT_EQ(rig.b.received[0].status, WorkStatus::kFlushed);
}

TEST_P(Conformance, FinWithReadsOutstandingIsLoss) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  std::vector<uint8_t> sink(10);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  ASSERT_EQ(
      rig.a.send(
          {.op =
               op::Read{
                   .sink_stag = to.stag, .sink_to = to.base_to, .length = 10, .stag = 1, .to = 0}}),
      Refusal::kNone);
  rig.a.qp->advance(rig.bench->now(), {});
  rig.bench->finish(rig.b.start.lower);
  ASSERT_TRUE(rig.run_until([&] {
    rig.a.qp->advance(rig.bench->now(), {});
    return rig.a.qp->state() == QpState::kEnded;
  }));
  EXPECT_EQ(rig.a.qp->terminate_info().reason, EndReason::kLlpLost);
  rig.a.poll();
  ASSERT_EQ(rig.a.sent.size(), 1u);
  EXPECT_EQ(rig.a.sent[0].status, WorkStatus::kFlushed);
}

TEST_P(Conformance, EachEndIsToldOnceBesideCompletions) {
  const base::UniqueFd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const auto told = [&] {
    eventfd_t ends = 0;
    return eventfd_read(event.get(), &ends) == 0 ? ends : 0;
  };
  Rig rig(GetParam(), {.end_event_fd = event.get()});
  rig.let_responder_speak();
  EXPECT_EQ(told(), 0u);
  rig.a.qp->drain();
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(told(), 2u);
  rig.a.qp->abort(std::nullopt);
  rig.step();
  EXPECT_EQ(told(), 0u);
}

TEST_P(Conformance, ATerminateThatNobodyReadsDoesNotWaitForEver) {
  Rig rig(GetParam(), {.linger = Duration::from_ms(20)});
  rig.a.qp->abort(rdmap::TermCode::operation(RDMAP_ECODE_UNSPECIFIED));
  // b is never advanced: its FIN does not come.
  ASSERT_TRUE(rig.run_until([&] {
    rig.a.qp->advance(rig.bench->now(), {});
    return rig.a.qp->state() == QpState::kEnded;
  }));
}

}  // namespace
}  // namespace ddpsock::conformance
