// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a queue pair tells of itself while it works.
#include <string_view>

#include "tests/conformance/rig.h"

namespace ddpsock::conformance {
namespace {

TEST_P(Conformance, CountersCountMessages) {
  Rig rig(GetParam(), {.wish = {.max_ulpdu = 1018}});
  const engine::QpCounters &a = rig.a.counters, &b = rig.b.counters;
  std::vector<uint8_t> room(10'000);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(rig.b.recv(i, room), Refusal::kNone);
  const auto small = pattern(10), large = pattern(2500);  // one FPDU, three
  ASSERT_EQ(rig.a.send(1, large), Refusal::kNone);
  ASSERT_EQ(rig.a.send(2, small), Refusal::kNone);
  EXPECT_EQ(a.sends_posted.value(), 2u);
  EXPECT_EQ(a.sends_completed.value(), 0u);
  EXPECT_EQ(b.receives_posted.value(), 3u);
  ASSERT_TRUE(rig.run_until([&] { return rig.b.received.size() == 2 && rig.a.sent.size() == 2; }));
  EXPECT_EQ(a.bytes_sent.value(), 2510u);
  EXPECT_EQ(a.segments_sent.value(), 4u);
  EXPECT_EQ(a.sends_completed.value(), 2u);
  EXPECT_EQ(a.sends_failed.value(), 0u);
  EXPECT_EQ(a.bytes_received.value(), 0u);
  EXPECT_EQ(b.bytes_received.value(), 2510u);
  EXPECT_EQ(b.segments_received.value(), 4u);
  EXPECT_EQ(b.receives_completed.value(), 2u);
  EXPECT_EQ(b.receives_failed.value(), 0u);
  EXPECT_EQ(b.bytes_sent.value(), 0u);
  if (rig.a.has(Capability::kWireTap)) {
    EXPECT_EQ(b.crcs_checked.value(), 4u);
    EXPECT_EQ(a.max_payload.load(), 1000u) << "without the header";
  }
  rig.a.qp->abort(std::nullopt);
  ASSERT_TRUE(rig.run_to_end());
  EXPECT_EQ(b.receives_completed.value(), 3u);
  EXPECT_EQ(b.receives_failed.value(), 1u);
}

// Whichever way they go; and one kind sees to it that they go directly.
TEST_P(Conformance, CountersCountWhatGoesDirectly) {
  constexpr uint64_t kMessages = 20;
  Rig rig(GetParam());
  rig.let_responder_speak();
  std::vector<uint8_t> room(100);
  const auto small = pattern(10);
  for (uint64_t i = 1; i <= kMessages; ++i) {
    ASSERT_EQ(rig.b.recv(i, room), Refusal::kNone);
    ASSERT_EQ(rig.a.send(i, small), Refusal::kNone);
    ASSERT_TRUE(
        rig.run_until([&] { return rig.b.received.size() == i && rig.a.sent.size() == i; }));
    EXPECT_EQ(rig.a.sent.back().length, 10u);
  }
  const engine::QpCounters& a = rig.a.counters;
  const bool is_direct = std::string_view(GetParam().name) == "direct_shm";
  EXPECT_EQ(a.sends_direct.value() >= kMessages, is_direct);
  EXPECT_EQ(a.sends_posted.value() + a.sends_direct.value(), kMessages + 1);
  EXPECT_EQ(a.sends_completed.value() + a.sends_direct.value(), kMessages + 1);
  EXPECT_EQ(rig.b.counters.receives_completed.value(), kMessages);
}

// A Read's request and an atomic's operands are no data; what a Read brings is.
TEST_P(Conformance, CountersCountOneSidedWork) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kOneSided);
  auto source = pattern(300);
  std::vector<uint8_t> sink(300);
  const engine::Mr from = rig.b.reg(source, rdmap::kRemoteRead);
  const engine::Mr to = rig.a.reg(sink, rdmap::kLocalWrite);
  ASSERT_EQ(rig.a.send({.id = 1,
                        .op = op::Read{.sink_stag = to.stag,
                                       .sink_to = to.base_to,
                                       .length = 300,
                                       .stag = from.stag,
                                       .to = from.base_to}}),
            Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return rig.a.sent.size() == 1; }));
  EXPECT_EQ(rig.a.counters.bytes_sent.value(), 0u);
  EXPECT_EQ(rig.a.counters.segments_sent.value(), 1u);
  EXPECT_EQ(rig.a.counters.bytes_received.value(), 300u);
  EXPECT_EQ(rig.b.counters.bytes_sent.value(), 300u);
  EXPECT_EQ(rig.b.counters.bytes_received.value(), 0u);
  EXPECT_EQ(rig.b.counters.segments_received.value(), 1u);
  EXPECT_EQ(rig.a.counters.sends_completed.value(), 1u);
}

TEST_P(Conformance, CountersCountSharedReceivesOnceTaken) {
  Rig rig(GetParam(), {.srq_depth = 8});
  SKIP_WITHOUT(rig.b, kSrq);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(rig.b.recv(i, {}), Refusal::kNone);
  EXPECT_EQ(rig.b.counters.receives_posted.value(), 0u);
  ASSERT_EQ(rig.a.send(1, {}), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return rig.b.received.size() == 1; }));
  EXPECT_EQ(rig.b.counters.receives_posted.value(), 1u);
  EXPECT_EQ(rig.b.counters.receives_completed.value(), 1u);
}

}  // namespace
}  // namespace ddpsock::conformance
