// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every operation between two queue pairs wired back to back.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "rdmap/pair.h"

namespace ddpsock::rdmap::test {
namespace {

std::vector<uint8_t> pattern(size_t n, uint8_t seed = 1) {
  std::vector<uint8_t> v(n);
  std::iota(v.begin(), v.end(), seed);
  return v;
}

TEST(Qp, SendsAMessageOfManySegmentsFromAGatherListIntoAScatterList) {
  Pair p;
  std::vector<uint8_t> in1(1000, 0xa5), in2(9000, 0xa5);
  const std::array<MutBytes, 2> scatter{MutBytes(in1), MutBytes(in2)};
  const RecvWr recv{11, scatter};
  ASSERT_EQ(p.b.qp.post_recv({&recv, 1}).accepted, 1u);
  const std::vector<uint8_t> out = pattern(7001);
  const std::array<Bytes, 3> gather{Bytes(out).first(1), Bytes(out).subspan(1, 5000),
                                    Bytes(out).subspan(5001)};
  ASSERT_EQ(p.a.send({.id = 5, .op = op::Send{.payload = gather}}).accepted, 1u);
  p.run(200);

  const auto received = p.b.receives();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].id, 11u);
  EXPECT_EQ(received[0].length, 7001u);
  EXPECT_EQ(received[0].status, WorkStatus::kOk);
  EXPECT_FALSE(received[0].is_solicited);
  EXPECT_TRUE(std::equal(in1.begin(), in1.end(), out.begin()));
  EXPECT_TRUE(std::equal(out.begin() + 1000, out.end(), in2.begin()));
  EXPECT_EQ(in2[6001], 0xa5);
  const auto sent = p.a.sends();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].id, 5u);
  EXPECT_EQ(p.a.qp.state(), QpState::kRts);
}

TEST(Qp, WritesAndReads) {
  Pair p;
  std::vector<uint8_t> remote(5000, 0), local(5000, 0);
  const uint32_t theirs = p.b.reg(remote, kRemoteWrite | kRemoteRead, 0x1000);
  const uint32_t ours = p.a.reg(local, kLocalWrite);
  const std::vector<uint8_t> data = pattern(3000);
  const Bytes range(data);
  p.a.send({.id = 1, .op = op::Write{.payload = {&range, 1}, .stag = theirs, .to = 0x1064}});
  p.a.send({.id = 2, .op = op::Read{ours, 500, 3000, theirs, 0x1064}});
  p.run(400);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), remote.begin() + 100));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), local.begin() + 500));
  EXPECT_EQ(local[499], 0);
  EXPECT_EQ(local[3500], 0);
  const auto done = p.a.sends();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].kind, WorkKind::kWrite);
  EXPECT_EQ(done[1].kind, WorkKind::kRead);
  EXPECT_EQ(done[1].length, 3000u);
}

}  // namespace
}  // namespace ddpsock::rdmap::test
