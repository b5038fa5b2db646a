// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared receive queues: several connections of the responder draw their receives from one.
#include <sys/eventfd.h>

#include <algorithm>
#include <set>

#include "base/fd.h"
#include "tests/conformance/rig.h"

namespace ddpsock::conformance {
namespace {

using engine::EndReason;
using engine::SetupError;

constexpr uint32_t kBufferSize = 4096;

// A rig whose responder shares receives among `pairs` connections.
struct SharedRig {
  explicit SharedRig(const Kind& kind, uint32_t pairs, const RigAttr& wished = {})
      : attr(shared(wished)), rig(kind, attr) {
    if (!rig.b.srq) return;
    for (uint32_t i = 1; i < pairs; ++i) rig.add_pair(attr);
  }
  static RigAttr shared(RigAttr attr) {
    if (attr.srq_depth == 0) attr.srq_depth = 64;
    return attr;
  }
  void post(uint64_t first, uint64_t count) {
    buffers.resize(std::max<size_t>(buffers.size(), first + count),
                   std::vector<uint8_t>(kBufferSize, 0xa5));
    for (uint64_t i = first; i < first + count; ++i)
      ASSERT_EQ(rig.b.recv(i, buffers[i]), Refusal::kNone) << i;
  }
  engine::Qp& initiator(uint32_t i) { return i == 0 ? *rig.a.qp : *rig.extra(i - 1).a; }
  engine::Qp& responder(uint32_t i) { return i == 0 ? *rig.b.qp : *rig.extra(i - 1).b; }
  // `message` is borrowed until it has left.
  Refusal send(uint32_t from, std::vector<uint8_t>&& message) = delete;
  Refusal send(uint32_t from, const std::vector<uint8_t>& message) {
    const Bytes payload(message);
    const SendWr wr{.id = from, .op = op::Send{.payload = {&payload, 1}}};
    return initiator(from).send({&wr, 1}).reason;
  }

  const RigAttr attr;
  std::vector<std::vector<uint8_t>> buffers;  // outlive the queue pairs
  Rig rig;
};

#define SKIP_WITHOUT_SRQ(s) SKIP_WITHOUT((s).rig.b, kSrq)

TEST_P(Conformance, SrqServesWhicheverConnectionHasAMessage) {
  SharedRig s(GetParam(), 3);
  SKIP_WITHOUT_SRQ(s);
  s.post(0, 12);
  std::vector<uint32_t> senders;
  for (uint32_t i = 0; i < 12; ++i) {
    const uint32_t from = i * 7 % 5 % 3;
    senders.push_back(from);
    const auto message = pattern(100 + i, i);
    ASSERT_EQ(s.send(from, message), Refusal::kNone);
    ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == i + 1; }));
  }
  for (uint32_t i = 0; i < 12; ++i) {
    const Completion& c = s.rig.b.received[i];
    EXPECT_EQ(c.id, i) << "the oldest receive goes to the message that comes next";
    EXPECT_EQ(c.qp, s.responder(senders[i]).number());
    EXPECT_EQ(c.status, WorkStatus::kOk);
    EXPECT_EQ(c.length, 100u + i);
    EXPECT_TRUE(c.is_shared);
    const auto message = pattern(100 + i, i);
    EXPECT_TRUE(std::equal(message.begin(), message.end(), s.buffers[i].begin()));
    EXPECT_EQ(s.buffers[i][100 + i], 0xa5);
  }
}

// Large messages of several connections at once: each keeps the receive that its first segment
// took, and each receive completes exactly once.
TEST_P(Conformance, SrqCompletesEachReceiveOnce) {
  SharedRig s(GetParam(), 4, {.wish = {.max_ulpdu = 600}});
  SKIP_WITHOUT_SRQ(s);
  constexpr uint32_t kMessages = 40;
  s.post(0, kMessages);
  std::vector<std::vector<uint8_t>> messages;
  for (uint32_t i = 0; i < kMessages; ++i) messages.push_back(pattern(3000 + i, i));
  for (uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(s.send(i % 4, messages[i]), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == kMessages; }));
  std::set<uint64_t> ids;
  std::vector<uint32_t> next(4, 0);
  for (const Completion& c : s.rig.b.received) {
    ASSERT_EQ(c.status, WorkStatus::kOk);
    EXPECT_TRUE(ids.insert(c.id).second) << c.id << " came twice";
    uint32_t from = 0;
    while (from < 4 && s.responder(from).number() != c.qp) ++from;
    ASSERT_LT(from, 4u);
    const auto& message = messages[from + 4 * next[from]++];
    ASSERT_EQ(c.length, message.size()) << "in the order of its connection's messages";
    EXPECT_TRUE(std::equal(message.begin(), message.end(), s.buffers[c.id].begin()));
  }
  EXPECT_EQ(ids.size(), kMessages);
}

TEST_P(Conformance, SrqWithoutReceivesEndsTheConnectionThatNeedsOne) {
  SharedRig s(GetParam(), 2);
  SKIP_WITHOUT_SRQ(s);
  s.post(0, 1);
  const auto message = pattern(10);
  ASSERT_EQ(s.send(0, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == 1; }));
  ASSERT_EQ(s.send(1, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] {
    return s.initiator(1).state() == QpState::kEnded && s.responder(1).state() == QpState::kEnded;
  }));
  EXPECT_EQ(s.responder(1).terminate_info().reason, EndReason::kTerminateSent);
  EXPECT_EQ(s.responder(1).terminate_info().terminate.code,
            rdmap::TermCode::ddp(ddp::Error::kNoBuffer));
  EXPECT_EQ(s.initiator(1).terminate_info().reason, EndReason::kTerminateReceived);
  s.post(1, 1);
  ASSERT_EQ(s.send(0, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == 2; }));
  EXPECT_EQ(s.rig.b.received[1].status, WorkStatus::kOk);
}

TEST_P(Conformance, SrqKeepsWhatADeadConnectionHadNotTaken) {
  SharedRig s(GetParam(), 2);
  SKIP_WITHOUT_SRQ(s);
  if (!s.rig.a.has(Capability::kWireTap)) GTEST_SKIP() << "no byte stream under this engine";
  s.post(0, 3);
  // A Send's first 3,000 bytes, MSN 1: not all of them.
  std::vector<uint8_t> fpdu = {0x0b, 0xca, 0x41, 0x43, 0, 0, 0, 0, 0, 0,
                               0,    0,    0,    0,    0, 1, 0, 0, 0, 0};
  fpdu.resize(1'000, 0x77);
  s.rig.bench->inject(s.rig.a.start.lower, fpdu);
  s.rig.settle();
  EXPECT_TRUE(s.rig.b.received.empty());
  s.rig.bench->cut(s.rig.a.start.lower);
  ASSERT_TRUE(s.rig.run_until([&] { return s.responder(0).state() == QpState::kEnded; }));
  s.rig.settle();
  ASSERT_EQ(s.rig.b.received.size(), 1u) << "the one it had taken, once";
  EXPECT_EQ(s.rig.b.received[0].id, 0u);
  EXPECT_EQ(s.rig.b.received[0].status, WorkStatus::kFlushed);
  EXPECT_EQ(s.rig.b.received[0].qp, s.responder(0).number());
  const auto message = pattern(10);
  for (uint32_t i = 0; i < 2; ++i) ASSERT_EQ(s.send(1, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == 3; }));
  EXPECT_EQ(s.rig.b.received[2].id, 2u);
  EXPECT_EQ(s.rig.b.received[2].status, WorkStatus::kOk);
}

TEST_P(Conformance, SrqLosesNothingToAConnectionThatEndsInOrder) {
  SharedRig s(GetParam(), 2);
  SKIP_WITHOUT_SRQ(s);
  s.post(0, 2);
  s.initiator(0).drain();
  ASSERT_TRUE(s.rig.run_until([&] { return s.responder(0).state() == QpState::kEnded; }));
  EXPECT_EQ(s.responder(0).terminate_info().reason, EndReason::kOrderly);
  const auto message = pattern(10);
  for (uint32_t i = 0; i < 2; ++i) ASSERT_EQ(s.send(1, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == 2; }));
  for (const Completion& c : s.rig.b.received) EXPECT_EQ(c.status, WorkStatus::kOk);
}

// One FPDU that names a message far ahead, and then garbage: it costs what it took, no more.
TEST_P(Conformance, SrqIsNotDrainedByAHostilePeer) {
  SharedRig s(GetParam(), 2);
  SKIP_WITHOUT_SRQ(s);
  s.post(0, 4);
  const auto too_long = pattern(kBufferSize + 1);
  ASSERT_EQ(s.send(0, too_long), Refusal::kNone);
  const auto message = pattern(10);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(s.send(0, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] { return s.responder(0).state() == QpState::kEnded; }));
  ASSERT_EQ(s.rig.b.received.size(), 1u);
  EXPECT_EQ(s.rig.b.received[0].status, WorkStatus::kFlushed);
  for (uint32_t i = 0; i < 3; ++i) ASSERT_EQ(s.send(1, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == 4; }));
  EXPECT_EQ(s.rig.b.received[3].status, WorkStatus::kOk);
}

TEST_P(Conformance, SrqTellsOnceWhenItRunsLow) {
  const base::UniqueFd event_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  SharedRig s(GetParam(), 2, {.srq_event_fd = event_fd.get()});
  SKIP_WITHOUT_SRQ(s);
  const auto signals = [&] {
    eventfd_t count = 0;
    return eventfd_read(event_fd.get(), &count) == 0 ? count : 0;
  };
  const auto take = [&](uint32_t from) {
    const size_t before = s.rig.b.received.size();
    const auto message = pattern(10);
    ASSERT_EQ(s.send(from, message), Refusal::kNone);
    ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == before + 1; }));
  };
  s.post(0, 4);
  s.rig.b.srq->set_limit(3);
  take(0);
  EXPECT_EQ(signals(), 0u) << "three are left";
  take(1);
  EXPECT_EQ(signals(), 1u);
  take(0);
  EXPECT_EQ(signals(), 0u) << "told already";
  s.rig.b.srq->set_limit(2);
  EXPECT_EQ(signals(), 1u) << "one is left";
  s.rig.b.srq->set_limit(0);
  take(1);
  EXPECT_EQ(signals(), 0u);
}

TEST_P(Conformance, SrqRefusesWhatItCannotHold) {
  SharedRig s(GetParam(), 1, {.cq_depth = 6, .srq_depth = 8});
  SKIP_WITHOUT_SRQ(s);
  engine::Engine& e = *s.rig.b.engine;
  s.post(0, 6);
  EXPECT_EQ(s.rig.b.recv(6, {}), Refusal::kCqFull);
  const auto message = pattern(10);
  ASSERT_EQ(s.send(0, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_until([&] { return s.rig.b.received.size() == 1; }));
  s.post(6, 1);
  const RecvWr wr{};
  EXPECT_EQ(s.responder(0).recv({&wr, 1}).reason, Refusal::kBadState);

  auto cq = *e.make_cq({.depth = 100});
  auto srq = *e.make_srq({.pd = s.rig.b.pd, .cq = cq.get(), .depth = 2});
  const std::vector<RecvWr> three(3);
  const engine::Posted posted = srq->recv(three);
  EXPECT_EQ(posted.accepted, 2u);
  EXPECT_EQ(posted.reason, Refusal::kQueueFull);
  srq->close();
  srq->close();
  EXPECT_EQ(srq->recv(three).reason, Refusal::kBadState);
}

TEST_P(Conformance, SrqRefusesWhatDoesNotBelongToIt) {
  SharedRig s(GetParam(), 1);
  SKIP_WITHOUT_SRQ(s);
  engine::Engine& e = *s.rig.b.engine;
  EXPECT_EQ(e.make_srq({.pd = s.rig.b.pd}).error(), SetupError::kBadArgument) << "no Cq";
  engine::SrqAttr attr{.pd = s.rig.b.pd, .cq = s.rig.b.recv_cq.get(), .depth = 0};
  EXPECT_EQ(e.make_srq(attr).error(), SetupError::kBadArgument);
  attr.depth = e.limits().max_srq_depth + 1;
  EXPECT_EQ(e.make_srq(attr).error(), SetupError::kLimit);
  attr = {.pd = engine::Pd{12345}, .cq = s.rig.b.recv_cq.get()};
  EXPECT_EQ(e.make_srq(attr).error(), SetupError::kBadArgument);

  const engine::Pd other = *e.open_pd();
  engine::QpAttr qp{.pd = other,
                    .send_cq = s.rig.b.send_cq.get(),
                    .recv_cq = s.rig.b.recv_cq.get(),
                    .srq = s.rig.b.srq.get()};
  EXPECT_EQ(e.make_qp(qp).error(), SetupError::kBadArgument) << "another Pd's";
  qp.pd = s.rig.b.pd;
  qp.recv_cq = s.rig.b.send_cq.get();
  EXPECT_EQ(e.make_qp(qp).error(), SetupError::kBadArgument) << "another Cq's";
  {
    auto srq = *e.make_srq({.pd = other, .cq = s.rig.b.recv_cq.get(), .depth = 1});
    EXPECT_EQ(e.close_pd(other).error(), SetupError::kInUse);
  }
  EXPECT_TRUE(e.close_pd(other));
}

TEST_P(Conformance, SrqClosedGivesBackWhatNobodyTook) {
  SharedRig s(GetParam(), 1);
  SKIP_WITHOUT_SRQ(s);
  s.post(0, 3);
  s.rig.b.srq->close();
  s.rig.settle();
  EXPECT_TRUE(s.rig.b.received.empty());
  s.buffers.clear();
  s.buffers.shrink_to_fit();
  const auto message = pattern(10);
  ASSERT_EQ(s.send(0, message), Refusal::kNone);
  ASSERT_TRUE(s.rig.run_to_end());
  EXPECT_EQ(s.responder(0).terminate_info().terminate.code,
            rdmap::TermCode::ddp(ddp::Error::kNoBuffer));
  EXPECT_TRUE(s.rig.b.received.empty());
}

}  // namespace
}  // namespace ddpsock::conformance
