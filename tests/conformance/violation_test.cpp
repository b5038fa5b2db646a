// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A peer that breaks a rule ends its connection: it is told why by a Terminate, memory that is not
// its own stays as it was, and all posted work is flushed.
#include <algorithm>

#include "tests/conformance/rig.h"

namespace ddpsock::conformance {
namespace {

using engine::EndReason;
using rdmap::TermCode;

// Both ends ended; `b` found the error and `a` was told.
void expect_terminated(Rig& rig, TermCode code) {
  ASSERT_TRUE(rig.run_to_end()) << describe(rig.a.qp->terminate_info());
  const auto at_a = rig.a.qp->terminate_info();
  const auto at_b = rig.b.qp->terminate_info();
  EXPECT_EQ(at_b.reason, EndReason::kTerminateSent) << describe(at_b);
  EXPECT_EQ(at_b.terminate.code, code) << describe(at_b);
  EXPECT_EQ(at_a.reason, EndReason::kTerminateReceived) << describe(at_a);
  EXPECT_EQ(at_a.terminate.code, code) << describe(at_a);
  EXPECT_FALSE(at_a.is_swapped);
  EXPECT_EQ(rig.a.send(99, {}), Refusal::kBadState);
  EXPECT_EQ(rig.b.recv(99, {}), Refusal::kBadState);
}

class Target {
 public:
  Target(Rig& rig, engine::Rights rights)
      : mr(rig.b.reg(MutBytes(memory).subspan(64, 128), rights)) {}
  bool is_untouched() const {
    return std::all_of(memory.begin(), memory.end(), [](uint8_t x) { return x == 0xa5; });
  }
  std::vector<uint8_t> memory = std::vector<uint8_t>(256, 0xa5);
  engine::Mr mr;
};

void write_to(Rig& rig, uint32_t stag, uint64_t to, size_t size) {
  const auto data = pattern(size);
  const Bytes payload(data);
  ASSERT_EQ(rig.a.send({.op = op::Write{.payload = {&payload, 1}, .stag = stag, .to = to}}),
            Refusal::kNone);
  ASSERT_TRUE(rig.run_to_end());
}

TEST_P(Conformance, SendWithoutReceiveIsNoBuffer) {
  Rig rig(GetParam());
  const auto message = pattern(10);
  ASSERT_EQ(rig.a.send(1, message), Refusal::kNone);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kNoBuffer));
  const auto info = rig.a.qp->terminate_info();
  EXPECT_EQ(info.terminate.code.etype, 2);  // untagged,
  EXPECT_EQ(info.terminate.code.code, 2);   // code 2
  EXPECT_EQ(info.terminate.segment_length, 18 + 10);
  EXPECT_EQ(info.terminate.ddp_header_length, 18);
}

TEST_P(Conformance, SendLongerThanTheReceiveIsTooLong) {
  Rig rig(GetParam());
  std::vector<uint8_t> buffer(9 + 8, 0xa5);
  const auto message = pattern(10);
  ASSERT_EQ(rig.b.recv(1, MutBytes(buffer).first(9)), Refusal::kNone);
  ASSERT_EQ(rig.a.send(1, message), Refusal::kNone);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kTooLong));
  EXPECT_EQ(buffer, std::vector<uint8_t>(17, 0xa5));
  ASSERT_EQ(rig.b.received.size(), 1u);
  EXPECT_EQ(rig.b.received[0].status, WorkStatus::kFlushed);
}

TEST_P(Conformance, WriteBeforeTheRegion) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  const Target t(rig, rdmap::kRemoteWrite);
  write_to(rig, t.mr.stag, t.mr.base_to - 1, 2);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kBaseOrBounds));
  EXPECT_TRUE(t.is_untouched());
}

TEST_P(Conformance, WriteBeyondTheRegion) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  const Target t(rig, rdmap::kRemoteWrite);
  write_to(rig, t.mr.stag, t.mr.base_to + 127, 2);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kBaseOrBounds));
  EXPECT_TRUE(t.is_untouched());
}

TEST_P(Conformance, WriteThatWraps) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  const Target t(rig, rdmap::kRemoteWrite);
  write_to(rig, t.mr.stag, ~uint64_t{0} - 3, 8);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kToWrap));
  EXPECT_TRUE(t.is_untouched());
}

TEST_P(Conformance, WriteWithAWrongKey) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  const Target t(rig, rdmap::kRemoteWrite);
  write_to(rig, t.mr.stag ^ 1, t.mr.base_to, 8);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kInvalidStag));
  EXPECT_TRUE(t.is_untouched());
}

TEST_P(Conformance, WriteWithAStaleStag) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  const Target t(rig, rdmap::kRemoteWrite);
  ASSERT_TRUE(rig.b.engine->deregister(t.mr));
  write_to(rig, t.mr.stag, t.mr.base_to, 8);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kInvalidStag));
  EXPECT_TRUE(t.is_untouched());
}

TEST_P(Conformance, WriteWithoutTheRight) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  const Target t(rig, rdmap::kRemoteRead | rdmap::kLocalWrite);
  write_to(rig, t.mr.stag, t.mr.base_to, 8);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kInvalidStag));
  EXPECT_TRUE(t.is_untouched());
}

TEST_P(Conformance, WriteToAForeignPd) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  std::vector<uint8_t> memory(64, 0xa5);
  const engine::Pd other = *rig.b.engine->open_pd();
  const auto mr = rig.b.engine->register_memory(
      {.memory = memory, .base_to = 0, .rights = rdmap::kRemoteWrite, .pd = other});
  ASSERT_TRUE(mr);
  write_to(rig, mr->stag, 0, 8);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kStagNotAssociated));
  EXPECT_EQ(memory, std::vector<uint8_t>(64, 0xa5));
}

TEST_P(Conformance, WriteToAnotherQueuePairsRegion) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  std::vector<uint8_t> memory(64, 0xa5);
  const auto mr = rig.b.engine->register_memory({.memory = memory,
                                                 .base_to = 0,
                                                 .rights = rdmap::kRemoteWrite,
                                                 .pd = rig.b.pd,
                                                 .qp = rig.b.qp->number() + 1});
  ASSERT_TRUE(mr);
  write_to(rig, mr->stag, 0, 8);
  expect_terminated(rig, TermCode::ddp(ddp::Error::kStagNotAssociated));
  EXPECT_EQ(memory, std::vector<uint8_t>(64, 0xa5));
}

TEST_P(Conformance, ReadWithoutTheRight) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  const Target t(rig, rdmap::kRemoteWrite);
  std::vector<uint8_t> sink(8, 0x5a);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  ASSERT_EQ(rig.a.send({.id = 1,
                        .op = op::Read{.sink_stag = to.stag,
                                       .sink_to = to.base_to,
                                       .length = 8,
                                       .stag = t.mr.stag,
                                       .to = t.mr.base_to}}),
            Refusal::kNone);
  expect_terminated(rig, TermCode::protection(RDMAP_ECODE_ACCESS_RIGHTS));
  EXPECT_TRUE(rig.a.qp->terminate_info().terminate.has_read_request);
  EXPECT_EQ(sink, std::vector<uint8_t>(8, 0x5a));
  ASSERT_EQ(rig.a.sent.size(), 1u);
  EXPECT_EQ(rig.a.sent[0].status, WorkStatus::kFlushed);
  EXPECT_TRUE(rig.a.engine->deregister(to));
}

TEST_P(Conformance, ReadBeyondTheRegion) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  const Target t(rig, rdmap::kRemoteRead);
  std::vector<uint8_t> sink(129);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  ASSERT_EQ(rig.a.send({.op = op::Read{.sink_stag = to.stag,
                                       .sink_to = to.base_to,
                                       .length = 129,
                                       .stag = t.mr.stag,
                                       .to = t.mr.base_to}}),
            Refusal::kNone);
  expect_terminated(rig, TermCode::protection(RDMAP_ECODE_BASE_BOUNDS));
}

TEST_P(Conformance, AtomicWithoutTheRight) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kAtomics);
  const Target t(rig, rdmap::kRemoteWrite | rdmap::kRemoteRead);
  ASSERT_EQ(rig.a.send({.op = op::FetchAdd{.stag = t.mr.stag, .to = t.mr.base_to, .add = 1}}),
            Refusal::kNone);
  expect_terminated(rig, TermCode::protection(RDMAP_ECODE_ACCESS_RIGHTS));
  EXPECT_TRUE(t.is_untouched());
}

TEST_P(Conformance, InvalidateOfAnUnknownStag) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kRemoteInvalidate);
  ASSERT_EQ(rig.b.recv(1, {}), Refusal::kNone);
  ASSERT_EQ(rig.a.send({.op = op::Send{.invalidate = 0x12345678}}), Refusal::kNone);
  expect_terminated(rig, TermCode::protection(RDMAP_ECODE_CANNOT_INVALIDATE));
  ASSERT_EQ(rig.b.received.size(), 1u);
  EXPECT_EQ(rig.b.received[0].status, WorkStatus::kFlushed);
}

TEST_P(Conformance, BadCrcTerminates) {
  Rig rig(GetParam());
  if (!rig.a.has(Capability::kWireTap)) GTEST_SKIP() << "no byte stream under this engine";
  std::vector<uint8_t> buffer(100, 0xa5);
  ASSERT_EQ(rig.b.recv(1, buffer), Refusal::kNone);
  // Send "hello", MSN 1, the last CRC byte wrong.
  const std::vector<uint8_t> fpdu = {0x00, 0x17, 0x41, 0x43, 0, 0, 0,    0,    0,    0,   0,
                                     0,    0,    0,    0,    1, 0, 0,    0,    0,    'h', 'e',
                                     'l',  'l',  'o',  0,    0, 0, 0xb9, 0x90, 0xb1, 0x0d};
  rig.bench->inject(rig.a.start.lower, fpdu);
  expect_terminated(rig, TermCode::mpa(RDMAP_ECODE_MPA_CRC));
  ASSERT_EQ(rig.b.received.size(), 1u);
  EXPECT_EQ(rig.b.received[0].status, WorkStatus::kFlushed);
}

TEST_P(Conformance, AnEndOfOneConnectionLeavesOthersAlone) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kSharedCq);
  Rig::Extra& other = rig.add_pair();
  ASSERT_EQ(rig.a.send(1, {}), Refusal::kNone);  // no receive posted
  ASSERT_TRUE(rig.run_to_end());
  const auto message = pattern(1000);
  std::vector<uint8_t> buffer(1000);
  const MutBytes to(buffer);
  const RecvWr recv{.id = 5, .buffer = {&to, 1}};
  ASSERT_EQ(other.b->recv({&recv, 1}).accepted, 1u);
  const Bytes payload(message);
  const SendWr send{.id = 6, .op = op::Send{.payload = {&payload, 1}}};
  ASSERT_EQ(other.a->send({&send, 1}).accepted, 1u);
  rig.b.received.clear();
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_EQ(buffer, message);
}

}  // namespace
}  // namespace ddpsock::conformance
