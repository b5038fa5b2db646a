// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Write, Read, atomics, fences, IRD and ORD.
#include <algorithm>

#include "tests/conformance/rig.h"

namespace ddpsock::conformance {
namespace {

uint64_t to_of(const void* p) {
  return reinterpret_cast<uintptr_t>(p);
}

SendWr write_wr(uint64_t id, const Bytes& payload, uint32_t stag, uint64_t to) {
  return {.id = id, .op = op::Write{.payload = {&payload, 1}, .stag = stag, .to = to}};
}

SendWr read_wr(uint64_t id, const engine::Mr& sink, uint64_t sink_to, uint32_t length,
               const engine::Mr& source, uint64_t to) {
  return {.id = id,
          .op = op::Read{.sink_stag = sink.stag,
                         .sink_to = sink_to,
                         .length = length,
                         .stag = source.stag,
                         .to = to}};
}

TEST_P(Conformance, WriteOfEverySizeLandsAndNowhereElse) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  std::vector<uint8_t> target(1'048'576 + 200);
  const engine::Mr mr = rig.b.reg(target, rdmap::kRemoteWrite);
  for (const size_t size : {1, 2, 3, 5, 100, 1446, 1447, 65521, 65522, 70'000, 1'048'576}) {
    std::fill(target.begin(), target.end(), uint8_t{0xa5});
    const auto data = pattern(size);
    const Bytes payload(data);
    rig.a.sent.clear();
    rig.b.received.clear();
    ASSERT_EQ(rig.b.recv(1, {}), Refusal::kNone);
    ASSERT_EQ(rig.a.send(write_wr(1, payload, mr.stag, to_of(&target[100]))), Refusal::kNone);
    ASSERT_EQ(rig.a.send(2, {}), Refusal::kNone);  // delivered after the Write was placed
    ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }))
        << describe(rig.b.qp->terminate_info());
    EXPECT_TRUE(std::equal(data.begin(), data.end(), target.begin() + 100)) << size;
    const auto is_canary = [](uint8_t x) { return x == 0xa5; };
    EXPECT_TRUE(std::all_of(target.begin(), target.begin() + 100, is_canary));
    EXPECT_TRUE(
        std::all_of(target.begin() + 100 + static_cast<ptrdiff_t>(size), target.end(), is_canary));
  }
}

TEST_P(Conformance, WriteGathersFromRanges) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  std::vector<uint8_t> target(3000);
  const engine::Mr mr = rig.b.reg(target, rdmap::kRemoteWrite);
  const auto data = pattern(3000);
  const Bytes all(data);
  const std::vector<Bytes> ranges = {all.first(7), all.subspan(7, 2000), all.subspan(2007)};
  ASSERT_EQ(rig.b.recv(1, {}), Refusal::kNone);
  ASSERT_EQ(rig.a.send({.op = op::Write{.payload = ranges, .stag = mr.stag, .to = mr.base_to}}),
            Refusal::kNone);
  ASSERT_EQ(rig.a.send(2, {}), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_EQ(target, data);
}

TEST_P(Conformance, EmptyWriteIsNotChecked) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  ASSERT_EQ(rig.b.recv(1, {}), Refusal::kNone);
  ASSERT_EQ(rig.a.send({.op = op::Write{.payload = {}, .stag = 0xdeadbeef, .to = ~0ull}}),
            Refusal::kNone);
  ASSERT_EQ(rig.a.send(2, {}), Refusal::kNone);
  EXPECT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
}

TEST_P(Conformance, ReadOfEverySizeBringsTheBytes) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  auto source = pattern(1'048'576);
  std::vector<uint8_t> sink(source.size() + 1, 0xa5);
  const engine::Mr from = rig.b.reg(source, rdmap::kRemoteRead);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  for (const uint32_t size : {1u, 3u, 100u, 1446u, 1447u, 65522u, 1'048'576u}) {
    std::fill(sink.begin(), sink.end(), uint8_t{0xa5});
    rig.a.sent.clear();
    ASSERT_EQ(rig.a.send(read_wr(size, to, to.base_to, size, from, from.base_to)), Refusal::kNone);
    ASSERT_TRUE(rig.run_until([&] { return !rig.a.sent.empty(); }))
        << describe(rig.b.qp->terminate_info());
    EXPECT_EQ(rig.a.sent[0].id, size);
    EXPECT_EQ(rig.a.sent[0].kind, WorkKind::kRead);
    EXPECT_EQ(rig.a.sent[0].status, WorkStatus::kOk);
    EXPECT_EQ(rig.a.sent[0].length, size);
    EXPECT_TRUE(std::equal(sink.begin(), sink.begin() + size, source.begin()));
    EXPECT_EQ(sink[size], 0xa5);
  }
  EXPECT_TRUE(rig.b.received.empty());
}

TEST_P(Conformance, EmptyReadIsAnswered) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  ASSERT_EQ(rig.a.send({.id = 9, .op = op::Read{.sink_stag = 5, .length = 0, .stag = 6}}),
            Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.a.sent.empty(); }));
  EXPECT_EQ(rig.a.sent[0].status, WorkStatus::kOk);
}

TEST_P(Conformance, MoreReadsThanOrdAllComplete) {
  Rig rig(GetParam(), {.wish = {.ird = 3, .ord = 3}});
  SKIP_WITHOUT(rig.a, kOneSided);
  auto source = pattern(64 * 1000);
  std::vector<uint8_t> sink(source.size());
  const engine::Mr from = rig.b.reg(source, rdmap::kRemoteRead);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  for (uint64_t i = 0; i < 64; ++i) {
    ASSERT_EQ(
        rig.a.send(read_wr(i, to, to.base_to + i * 1000, 1000, from, from.base_to + i * 1000)),
        Refusal::kNone);
  }
  ASSERT_TRUE(rig.run_until([&] { return rig.a.sent.size() == 64; }));
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(rig.a.sent[i].id, i);
  EXPECT_EQ(sink, source);
}

TEST_P(Conformance, ReadsWithoutOrdAreRefused) {
  Rig rig(GetParam(), {.wish = {.ird = 0, .ord = 0}});
  SKIP_WITHOUT(rig.a, kOneSided);
  EXPECT_EQ(rig.a.send({.op = op::Read{}}), Refusal::kNoReadsAllowed);
}

TEST_P(Conformance, ReadSinkIsCheckedWhenPosted) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  std::vector<uint8_t> sink(100);
  const engine::Mr source_only = rig.a.reg(sink, rdmap::kRemoteRead);
  const engine::Mr writable = rig.a.reg(sink, rdmap::kLocalWrite);
  const engine::Mr peer{.stag = 1, .base_to = 0, .length = 100};
  EXPECT_EQ(rig.a.send(read_wr(1, source_only, source_only.base_to, 10, peer, 0)),
            Refusal::kBadSink);
  EXPECT_EQ(rig.a.send(read_wr(1, writable, writable.base_to + 91, 10, peer, 0)),
            Refusal::kBadSink);
  EXPECT_EQ(rig.a.send(read_wr(1, peer, 0, 10, peer, 0)), Refusal::kBadSink);
}

TEST_P(Conformance, FenceWaitsForEarlierReads) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  auto source = pattern(200'000);
  std::vector<uint8_t> sink(source.size());
  std::vector<uint8_t> copy(source.size());
  const engine::Mr from = rig.b.reg(source, rdmap::kRemoteRead);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  ASSERT_EQ(rig.b.recv(1, copy), Refusal::kNone);
  // The Send forwards what the Read brings: right only if it starts afterwards.
  ASSERT_EQ(rig.a.send(read_wr(1, to, to.base_to, 200'000, from, from.base_to)), Refusal::kNone);
  const Bytes payload(sink);
  ASSERT_EQ(rig.a.send({.id = 2, .op = op::Send{.payload = {&payload, 1}}, .has_fence = true}),
            Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_EQ(copy, source);
}

TEST_P(Conformance, AtomicsFetchAddSwapAndCompare) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kAtomics);
  alignas(8) std::array<uint64_t, 2> words{40, 0x1111};
  const MutBytes memory(reinterpret_cast<uint8_t*>(words.data()), sizeof words);
  const engine::Mr mr = rig.b.reg(memory, rdmap::kRemoteAtomic);
  const uint64_t to = mr.base_to;
  ASSERT_EQ(rig.a.send({.id = 1, .op = op::FetchAdd{.stag = mr.stag, .to = to, .add = 2}}),
            Refusal::kNone);
  ASSERT_EQ(rig.a.send({.id = 2, .op = op::Swap{.stag = mr.stag, .to = to, .value = 7}}),
            Refusal::kNone);
  ASSERT_EQ(
      rig.a.send({.id = 3, .op = op::CmpSwap{.stag = mr.stag, .to = to, .compare = 8, .swap = 9}}),
      Refusal::kNone);
  ASSERT_EQ(
      rig.a.send({.id = 4, .op = op::CmpSwap{.stag = mr.stag, .to = to, .compare = 7, .swap = 10}}),
      Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return rig.a.sent.size() == 4; }))
      << describe(rig.b.qp->terminate_info());
  const std::array<uint64_t, 4> found = {40, 42, 7, 7};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rig.a.sent[i].status, WorkStatus::kOk);
    EXPECT_EQ(rig.a.sent[i].original, found[i]) << i;
  }
  EXPECT_EQ(words[0], 10u);
  EXPECT_EQ(words[1], 0x1111u);
}

TEST_P(Conformance, SendWithInvalidateEndsThePeersStag) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kRemoteInvalidate);
  std::vector<uint8_t> target(10, 0xa5);
  const engine::Mr mr = rig.b.reg(target, rdmap::kRemoteWrite);
  ASSERT_EQ(rig.b.recv(1, {}), Refusal::kNone);
  ASSERT_EQ(rig.a.send({.id = 1, .op = op::Send{.is_solicited = true, .invalidate = mr.stag}}),
            Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_EQ(rig.b.received[0].invalidated_stag, mr.stag);
  EXPECT_TRUE(rig.b.received[0].is_solicited);

  const auto data = pattern(10);
  const Bytes payload(data);
  ASSERT_EQ(rig.a.send(write_wr(2, payload, mr.stag, mr.base_to)), Refusal::kNone);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(target, std::vector<uint8_t>(10, 0xa5));
  EXPECT_TRUE(rig.b.engine->deregister(mr));
}

TEST_P(Conformance, LocalInvalidateTakesItsTurn) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  auto source = pattern(100);
  std::vector<uint8_t> sink(100);
  const engine::Mr from = rig.b.reg(source, rdmap::kRemoteRead);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  ASSERT_EQ(rig.a.send(read_wr(1, to, to.base_to, 100, from, from.base_to)), Refusal::kNone);
  ASSERT_EQ(rig.a.send({.id = 2, .op = op::LocalInvalidate{.stag = to.stag}, .has_fence = true}),
            Refusal::kNone);
  ASSERT_EQ(rig.a.send({.id = 3, .op = op::LocalInvalidate{.stag = to.stag}}), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return rig.a.sent.size() == 3; }));
  EXPECT_EQ(rig.a.sent[0].status, WorkStatus::kOk);
  EXPECT_EQ(rig.a.sent[1].status, WorkStatus::kOk);
  EXPECT_EQ(rig.a.sent[2].status, WorkStatus::kLocalError);
  EXPECT_EQ(sink, source);
  EXPECT_EQ(rig.a.send(read_wr(4, to, to.base_to, 1, from, from.base_to)), Refusal::kBadSink);
}

}  // namespace
}  // namespace ddpsock::conformance
