// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Placement apart from delivery: segments of two queue pairs shuffled and repeated on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "rdmap/pair.h"

namespace ddpsock::rdmap::test {
namespace {

// Delivers in any order within a window, some twice.
void shuffle(std::vector<Ulpdu>& flight, std::mt19937& random) {
  const size_t once = flight.size();
  for (size_t i = 0; i < once; ++i) {
    if (random() % 4 == 0) flight.push_back(flight[i]);
  }
  std::shuffle(flight.begin(), flight.end(), random);
}

void fill(std::vector<uint8_t>& v, std::mt19937& random) {
  for (uint8_t& b : v) b = static_cast<uint8_t>(random());
}

TEST(QpOrder, Trap24AnyOrderAndRepeatsDeliverEverythingOnceInOrder) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Pair p(QpAttr{.number = 1, .pd = 7, .max_fragments = 256, .order = ddp::LlpOrder::kAnyOrder}, 4,
           Rtr::kNone);
    std::vector<uint8_t> remote(2000), local(2000), written(2000), target(2000);
    fill(remote, random);
    fill(written, random);
    const uint32_t theirs = p.b.reg(remote, kRemoteRead);
    const uint32_t theirs_in = p.b.reg(target, kRemoteWrite);
    const uint32_t ours = p.a.reg(local, kLocalWrite);
    std::array<std::vector<uint8_t>, 6> in, out;
    for (size_t i = 0; i < in.size(); ++i) {
      in[i].assign(700, 0xa5);
      out[i].resize(random() % 701);
      fill(out[i], random);
      p.b.recv(i, in[i]);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const Bytes range(out[i]);
      p.a.send({.id = i, .op = op::Send{.payload = {&range, 1}}});
      if (i % 2 == 0) {
        const uint32_t at = static_cast<uint32_t>(i) * 300;
        p.a.send({.id = 100 + i, .op = op::Read{ours, at, 300, theirs, at}});
        const Bytes piece = Bytes(written).subspan(at, 300);
        p.a.send(
            {.id = 200 + i, .op = op::Write{.payload = {&piece, 1}, .stag = theirs_in, .to = at}});
      }
    }
    for (int round = 0; round < 4; ++round) {
      std::vector<Ulpdu> there = p.a.output(100);
      shuffle(there, random);
      for (const Ulpdu& u : there) ASSERT_FALSE(p.b.input(u));
      std::vector<Ulpdu> back = p.b.output(100);
      shuffle(back, random);
      for (const Ulpdu& u : back) ASSERT_FALSE(p.a.input(u));
    }
    const auto received = p.b.receives();
    ASSERT_EQ(received.size(), in.size());
    for (size_t i = 0; i < received.size(); ++i) {
      ASSERT_EQ(received[i].id, i);
      ASSERT_EQ(received[i].length, out[i].size());
      ASSERT_TRUE(std::equal(out[i].begin(), out[i].end(), in[i].begin()));
    }
    ASSERT_EQ(p.a.sends().size(), 12u);
    for (uint32_t at : {0u, 600u, 1200u}) {
      ASSERT_TRUE(std::equal(remote.begin() + at, remote.begin() + at + 300, local.begin() + at));
      ASSERT_TRUE(
          std::equal(written.begin() + at, written.begin() + at + 300, target.begin() + at));
    }
  }
}

// Random work both ways over an in-order wire with random MULPDUs: exactly one completion per
// request, in order, and the streams stay up.
TEST(QpOrder, RandomWorkCompletesExactlyOnceInOrder) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Pair p(
        QpAttr{
            .number = 1, .pd = 7, .send_depth = 16, .recv_depth = 16, .max_ird = 3, .max_ord = 3},
        1 + random() % 3, static_cast<Rtr>(random() % 4));
    alignas(8) std::array<uint8_t, 4096> a_memory{}, b_memory{};
    std::array<Endpoint*, 2> ends{&p.a, &p.b};
    const Rights all = kRemoteRead | kRemoteWrite | kRemoteAtomic | kLocalWrite;
    const std::array<uint32_t, 2> stags{p.a.reg(a_memory, all), p.b.reg(b_memory, all)};
    std::array<std::array<uint8_t, 600>, 2> in;
    std::array<uint64_t, 2> next_id{}, next_done{}, next_recv{}, recv_done{};
    const std::vector<uint8_t> data(500, 0x33);

    const auto drain = [&](size_t e) {
      for (const Completion& c : ends[e]->sends()) {
        ASSERT_EQ(c.id, next_done[e]++);
        ASSERT_EQ(c.status, WorkStatus::kOk);
      }
      for (const Completion& c : ends[e]->receives()) {
        ASSERT_EQ(c.id, recv_done[e]++);
        ASSERT_EQ(c.status, WorkStatus::kOk);
      }
    };
    for (int step = 0; step < 120; ++step) {
      const size_t e = random() % 2;
      Endpoint& end = *ends[e];
      while (end.recv(next_recv[e], in[e]).accepted == 1) ++next_recv[e];
      const Bytes range = Bytes(data).first(random() % 500);
      const uint32_t peer = stags[1 - e];
      SendWr wr{.id = next_id[e], .has_fence = random() % 8 == 0};
      // A Send needs a receive that is surely there: at most one in flight before the wire runs.
      switch (random() % 5) {
        case 0:
          wr.op = op::Write{.payload = {&range, 1}, .stag = peer, .to = random() % 3000};
          break;
        case 1:
          wr.op = op::Read{stags[e], random() % 3000, static_cast<uint32_t>(random() % 500), peer,
                           random() % 3000};
          break;
        case 2:
          wr.op = op::FetchAdd{peer, random() % 100 * 8, 1, 0};
          break;
        case 3:
          wr.op = op::Immediate{random(), true};
          break;
        default:
          wr.op = op::Send{.payload = {&range, 1}};
          break;
      }
      if (end.send(wr).accepted == 1) ++next_id[e];
      if (random() % 3 == 0) {
        for (Endpoint* x : ends) {
          Endpoint& other = x == &p.a ? p.b : p.a;
          while (other.recv(next_recv[x == &p.a ? 1 : 0], in[x == &p.a ? 1 : 0]).accepted == 1) {
            ++next_recv[x == &p.a ? 1 : 0];
          }
          Pair::carry(*x, other, 128 + random() % 1400);
        }
      }
      drain(0);
      drain(1);
    }
    // A responder may have been silenced by an initiator with nothing to say.
    if (p.a.send_text(next_id[0], "").accepted == 1) ++next_id[0];
    for (int i = 0; i < 20; ++i) {
      for (size_t e = 0; e < 2; ++e) {
        while (ends[e]->recv(next_recv[e], in[e]).accepted == 1) ++next_recv[e];
      }
      Pair::carry(p.a, p.b, 300);
      Pair::carry(p.b, p.a, 300);
      drain(0);
      drain(1);
    }
    ASSERT_EQ(p.a.qp.state(), QpState::kRts) << to_string(p.a.qp.terminate_info().terminate.code);
    ASSERT_EQ(p.b.qp.state(), QpState::kRts) << to_string(p.b.qp.terminate_info().terminate.code);
    EXPECT_EQ(next_done, next_id);
  }
}

}  // namespace
}  // namespace ddpsock::rdmap::test
