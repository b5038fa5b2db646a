// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Send in all forms, Immediate Data, and the order of completions.
#include <algorithm>

#include "tests/conformance/rig.h"

namespace ddpsock::conformance {
namespace {

TEST_P(Conformance, SendArrivesInThePostedBuffer) {
  Rig rig(GetParam());
  const auto message = pattern(100);
  std::vector<uint8_t> buffer(200, 0xa5);
  ASSERT_EQ(rig.b.recv(7, buffer), Refusal::kNone);
  ASSERT_EQ(rig.a.send(3, message), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty() && !rig.a.sent.empty(); }));

  EXPECT_EQ(rig.b.received[0].id, 7u);
  EXPECT_EQ(rig.b.received[0].kind, WorkKind::kReceive);
  EXPECT_EQ(rig.b.received[0].status, WorkStatus::kOk);
  EXPECT_EQ(rig.b.received[0].length, 100u);
  EXPECT_EQ(rig.b.received[0].qp, rig.b.qp->number());
  EXPECT_FALSE(rig.b.received[0].is_solicited);
  EXPECT_TRUE(std::equal(message.begin(), message.end(), buffer.begin()));
  EXPECT_TRUE(std::all_of(buffer.begin() + 100, buffer.end(), [](uint8_t x) { return x == 0xa5; }));
  EXPECT_EQ(rig.a.sent[0].id, 3u);
  EXPECT_EQ(rig.a.sent[0].kind, WorkKind::kSend);
  EXPECT_EQ(rig.a.sent[0].status, WorkStatus::kOk);
}

TEST_P(Conformance, SendOfEverySizeKeepsItsBytes) {
  Rig rig(GetParam());
  for (const size_t size :
       {1,    2,    3,    4,    5,     63,    64,    65,    127,   1023,    1440,    1441,
        1442, 4095, 4096, 9000, 16384, 65517, 65518, 65535, 65536, 100'000, 262'144, 1'048'576}) {
    const auto message = pattern(size, static_cast<uint32_t>(size));
    std::vector<uint8_t> buffer(size + 1, 0xa5);
    rig.b.received.clear();
    rig.a.sent.clear();
    ASSERT_EQ(rig.b.recv(size, buffer), Refusal::kNone);
    ASSERT_EQ(rig.a.send(size, message), Refusal::kNone);
    ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty() && !rig.a.sent.empty(); }))
        << size << ": " << describe(rig.b.qp->terminate_info());
    EXPECT_EQ(rig.b.received[0].length, size);
    EXPECT_TRUE(std::equal(message.begin(), message.end(), buffer.begin())) << size;
    EXPECT_EQ(buffer.back(), 0xa5);
  }
}

TEST_P(Conformance, EmptySendConsumesAReceive) {
  Rig rig(GetParam());
  ASSERT_EQ(rig.b.recv(1, {}), Refusal::kNone);
  ASSERT_EQ(rig.a.send(2, {}), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_EQ(rig.b.received[0].length, 0u);
  EXPECT_EQ(rig.b.received[0].status, WorkStatus::kOk);
}

TEST_P(Conformance, ResponderSendsAfterItHasReceived) {
  Rig rig(GetParam());
  const auto message = pattern(10);
  std::vector<uint8_t> buffer(10);
  ASSERT_EQ(rig.a.recv(1, buffer), Refusal::kNone);
  ASSERT_EQ(rig.b.send(2, message), Refusal::kNone);
  rig.settle();
  EXPECT_TRUE(rig.a.received.empty());  // RFC 5044 section 7.1.2
  rig.let_responder_speak();
  ASSERT_TRUE(rig.run_until([&] { return !rig.a.received.empty(); }));
  EXPECT_EQ(buffer, message);
}

TEST_P(Conformance, SolicitedIsTold) {
  Rig rig(GetParam());
  std::vector<uint8_t> buffer(8);
  const auto message = pattern(8);
  const Bytes payload(message);
  ASSERT_EQ(rig.b.recv(1, buffer), Refusal::kNone);
  ASSERT_EQ(rig.a.send({.id = 1, .op = op::Send{.payload = {&payload, 1}, .is_solicited = true}}),
            Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_TRUE(rig.b.received[0].is_solicited);
}

TEST_P(Conformance, GatherAndScatterListsMeetAnywhere) {
  Rig rig(GetParam());
  const auto message = pattern(10'000);
  std::vector<uint8_t> buffer(10'000);
  const Bytes all(message);
  const std::vector<Bytes> from = {all.first(1), all.subspan(1, 99), all.subspan(100, 0),
                                   all.subspan(100, 5000), all.subspan(5100)};
  const MutBytes room(buffer);
  const std::vector<MutBytes> to = {room.first(3000), room.subspan(3000, 1),
                                    room.subspan(3001, 6000), room.subspan(9001)};
  const RecvWr wr{.id = 1, .buffer = to};
  ASSERT_EQ(rig.b.qp->recv({&wr, 1}).accepted, 1u);
  ASSERT_EQ(rig.a.send({.id = 1, .op = op::Send{.payload = from}}), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_EQ(buffer, message);
}

TEST_P(Conformance, TooManyRangesAreRefused) {
  Rig rig(GetParam());
  const auto message = pattern(100);
  std::vector<Bytes> from(rig.a.engine->limits().max_slices + 1, Bytes(message).first(1));
  EXPECT_EQ(rig.a.send({.op = op::Send{.payload = from}}), Refusal::kTooManySlices);
  from.pop_back();
  EXPECT_EQ(rig.a.send({.op = op::Send{.payload = from}}), Refusal::kNone);
}

TEST_P(Conformance, InlinePayloadIsCopiedAtOnce) {
  Rig rig(GetParam());
  std::vector<uint8_t> message(rig.a.engine->limits().max_inline, 0x11);
  std::vector<uint8_t> buffer(message.size());
  const Bytes payload(message);
  ASSERT_EQ(rig.b.recv(1, buffer), Refusal::kNone);
  ASSERT_EQ(rig.a.send({.op = op::Send{.payload = {&payload, 1}}, .is_inline = true}),
            Refusal::kNone);
  std::fill(message.begin(), message.end(), uint8_t{0x22});
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), [](uint8_t x) { return x == 0x11; }));

  const std::vector<uint8_t> longer(message.size() + 1);
  const Bytes too_long(longer);
  EXPECT_EQ(rig.a.send({.op = op::Send{.payload = {&too_long, 1}}, .is_inline = true}),
            Refusal::kTooLong);
}

TEST_P(Conformance, UnsignalledSendsStaySilent) {
  Rig rig(GetParam());
  std::vector<uint8_t> buffer(64);
  for (uint64_t i = 0; i < 6; ++i) ASSERT_EQ(rig.b.recv(i, buffer), Refusal::kNone);
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(rig.a.send({.id = i, .op = op::Send{}, .is_signalled = i % 3 == 2}), Refusal::kNone);
  }
  ASSERT_TRUE(rig.run_until([&] { return rig.b.received.size() == 6; }));
  ASSERT_EQ(rig.a.sent.size(), 2u);
  EXPECT_EQ(rig.a.sent[0].id, 2u);
  EXPECT_EQ(rig.a.sent[1].id, 5u);
}

TEST_P(Conformance, ImmediateDataArrivesWithoutABuffer) {
  Rig rig(GetParam());
  SKIP_WITHOUT(rig.a, kImmediate);
  std::vector<uint8_t> buffer(16, 0xa5);
  ASSERT_EQ(rig.b.recv(1, buffer), Refusal::kNone);
  ASSERT_EQ(rig.b.recv(2, buffer), Refusal::kNone);
  ASSERT_EQ(rig.a.send({.id = 1, .op = op::Immediate{.value = 0x0123456789abcdef}}),
            Refusal::kNone);
  ASSERT_EQ(rig.a.send({.id = 2, .op = op::Immediate{.value = 5, .is_solicited = true}}),
            Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return rig.b.received.size() == 2; }));
  EXPECT_EQ(rig.b.received[0].immediate, 0x0123456789abcdefu);
  EXPECT_FALSE(rig.b.received[0].is_solicited);
  EXPECT_EQ(rig.b.received[1].immediate, 5u);
  EXPECT_TRUE(rig.b.received[1].is_solicited);
  EXPECT_EQ(buffer, std::vector<uint8_t>(16, 0xa5));
  ASSERT_EQ(rig.a.sent.size(), 2u);
  EXPECT_EQ(rig.a.sent[0].kind, WorkKind::kImmediate);
}

TEST_P(Conformance, ManyOutstandingCompleteInPostingOrder) {
  Rig rig(GetParam(), {.send_depth = 512, .recv_depth = 512, .cq_depth = 1024});
  constexpr uint64_t kMany = 512;
  std::vector<std::vector<uint8_t>> messages;
  std::vector<std::vector<uint8_t>> buffers;
  for (uint64_t i = 0; i < kMany; ++i) {
    messages.push_back(pattern(i * 7 % 3000, static_cast<uint32_t>(i)));
    buffers.emplace_back(messages.back().size());
    ASSERT_EQ(rig.b.recv(i, buffers[i]), Refusal::kNone);
  }
  for (uint64_t i = 0; i < kMany; ++i) ASSERT_EQ(rig.a.send(i, messages[i]), Refusal::kNone);
  ASSERT_TRUE(
      rig.run_until([&] { return rig.b.received.size() == kMany && rig.a.sent.size() == kMany; }));
  for (uint64_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(rig.b.received[i].id, i);
    EXPECT_EQ(rig.a.sent[i].id, i);
    EXPECT_EQ(buffers[i], messages[i]) << i;
  }
}

TEST_P(Conformance, BothEndsSendAtOnce) {
  Rig rig(GetParam());
  rig.let_responder_speak();
  const auto up = pattern(300'000, 1);
  const auto down = pattern(300'000, 2);
  std::vector<uint8_t> at_b(up.size());
  std::vector<uint8_t> at_a(down.size());
  ASSERT_EQ(rig.b.recv(1, at_b), Refusal::kNone);
  ASSERT_EQ(rig.a.recv(1, at_a), Refusal::kNone);
  ASSERT_EQ(rig.a.send(1, up), Refusal::kNone);
  ASSERT_EQ(rig.b.send(1, down), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.a.received.empty() && !rig.b.received.empty(); }));
  EXPECT_EQ(at_b, up);
  EXPECT_EQ(at_a, down);
}

TEST_P(Conformance, WithoutCrc) {
  Rig rig(GetParam(), {.wish = {.has_crc = false}});
  const auto message = pattern(5000);
  std::vector<uint8_t> buffer(5000);
  ASSERT_EQ(rig.b.recv(1, buffer), Refusal::kNone);
  ASSERT_EQ(rig.a.send(1, message), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_EQ(buffer, message);
}

TEST_P(Conformance, WithMarkersBothWays) {
  Rig rig(GetParam(), {.wish = {.has_markers = true}});
  rig.let_responder_speak();
  for (const size_t size : {1, 500, 1000, 5000, 200'000}) {
    const auto message = pattern(size);
    std::vector<uint8_t> at_a(size);
    std::vector<uint8_t> at_b(size);
    rig.a.received.clear();
    rig.b.received.clear();
    ASSERT_EQ(rig.b.recv(1, at_b), Refusal::kNone);
    ASSERT_EQ(rig.a.recv(1, at_a), Refusal::kNone);
    ASSERT_EQ(rig.a.send(1, message), Refusal::kNone);
    ASSERT_EQ(rig.b.send(1, message), Refusal::kNone);
    ASSERT_TRUE(rig.run_until([&] { return !rig.a.received.empty() && !rig.b.received.empty(); }))
        << size;
    EXPECT_EQ(at_a, message);
    EXPECT_EQ(at_b, message);
  }
}

TEST_P(Conformance, LargestFpdus) {
  Rig rig(GetParam(), {.wish = {.max_ulpdu = 65535}});
  const auto message = pattern(1'000'000);
  std::vector<uint8_t> buffer(message.size());
  ASSERT_EQ(rig.b.recv(1, buffer), Refusal::kNone);
  ASSERT_EQ(rig.a.send(1, message), Refusal::kNone);
  ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
  EXPECT_EQ(buffer, message);
}

TEST_P(Conformance, RtrOpensTheWayForTheResponder) {
  for (const engine::Rtr rtr : {engine::Rtr::kSend, engine::Rtr::kWrite, engine::Rtr::kRead}) {
    Rig rig(GetParam(), {.wish = {.ird = 0, .ord = 0, .rtr = rtr}});
    const auto message = pattern(10);
    std::vector<uint8_t> at_a(10);
    std::vector<uint8_t> at_b(10);
    ASSERT_EQ(rig.a.recv(1, at_a), Refusal::kNone);
    ASSERT_EQ(rig.b.recv(1, at_b), Refusal::kNone);
    ASSERT_EQ(rig.b.send(1, message), Refusal::kNone);
    ASSERT_TRUE(rig.run_until([&] { return !rig.a.received.empty(); }));
    EXPECT_TRUE(rig.b.received.empty());  // the RTR message is nobody's
    EXPECT_TRUE(rig.a.sent.empty());
    ASSERT_EQ(rig.a.send(2, message), Refusal::kNone);
    ASSERT_TRUE(rig.run_until([&] { return !rig.b.received.empty(); }));
    EXPECT_EQ(at_a, message);
    EXPECT_EQ(at_b, message);
  }
}

}  // namespace
}  // namespace ddpsock::conformance
