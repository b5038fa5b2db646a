// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/rig.h"

#include <array>
#include <chrono>

namespace ddpsock::conformance {
namespace {

constexpr std::chrono::seconds kPatience{10};

std::unique_ptr<engine::Qp> make_qp(Side& s, const RigAttr& attr) {
  // Those of extra pairs count nowhere.
  auto* counters = s.qp ? nullptr : &s.counters;
  auto qp = s.engine->make_qp({.pd = s.pd,
                               .send_cq = s.send_cq.get(),
                               .recv_cq = s.recv_cq.get(),
                               .counters = counters,
                               .srq = s.srq.get(),
                               .send_depth = attr.send_depth,
                               .recv_depth = attr.recv_depth,
                               .max_ird = 16,
                               .max_ord = 16,
                               .linger = attr.linger,
                               .event_fd = attr.end_event_fd});
  EXPECT_TRUE(qp);
  return std::move(*qp);
}

void set_up(Side& s, Bench& bench, const RigAttr& attr) {
  s.engine = bench.make_engine();
  s.pd = *s.engine->open_pd();
  s.send_cq = *s.engine->make_cq({.depth = attr.cq_depth});
  s.recv_cq = *s.engine->make_cq({.depth = attr.cq_depth});
}

void poll_into(engine::Cq& cq, std::vector<Completion>& out) {
  std::array<Completion, 16> batch;
  while (const uint32_t n = cq.poll(batch)) out.insert(out.end(), batch.begin(), batch.begin() + n);
}

}  // namespace

std::vector<uint8_t> pattern(size_t size, uint32_t seed) {
  std::vector<uint8_t> out(size);
  uint32_t x = seed * 2654435761u + 1;
  for (uint8_t& byte : out) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(x >> 24);
  }
  return out;
}

Refusal Side::send(const SendWr& wr) {
  return qp->send({&wr, 1}).reason;
}

Refusal Side::send(uint64_t id, Bytes payload) {
  return send({.id = id, .op = op::Send{.payload = {&payload, 1}}});
}

Refusal Side::recv(uint64_t id, MutBytes buffer) {
  const RecvWr wr{.id = id, .buffer = {&buffer, 1}};
  return srq ? srq->recv({&wr, 1}).reason : qp->recv({&wr, 1}).reason;
}

engine::Mr Side::reg(MutBytes memory, engine::Rights rights) {
  const auto mr = engine->register_memory({.memory = memory,
                                           .base_to = reinterpret_cast<uintptr_t>(memory.data()),
                                           .rights = rights,
                                           .pd = pd});
  EXPECT_TRUE(mr);
  return mr.value_or(engine::Mr{});
}

void Side::poll() {
  poll_into(*send_cq, sent);
  poll_into(*recv_cq, received);
}

Rig::Rig(const Kind& kind, const RigAttr& attr) : bench(kind.make()) {
  set_up(a, *bench, attr);
  set_up(b, *bench, attr);
  if (attr.srq_depth != 0) {
    auto srq = b.engine->make_srq({.pd = b.pd,
                                   .cq = b.recv_cq.get(),
                                   .depth = attr.srq_depth,
                                   .event_fd = attr.srq_event_fd});
    // Tests that need one skip then.
    EXPECT_EQ(srq.has_value(), b.has(Capability::kSrq));
    if (srq) b.srq = std::move(*srq);
  }
  a.qp = make_qp(a, attr);
  b.qp = make_qp(b, attr);
  const Joined joined = bench->join(attr.wish);
  a.start = joined.ends[0];
  b.start = joined.ends[1];
  EXPECT_TRUE(a.qp->start(a.start));
  EXPECT_TRUE(b.qp->start(b.start));
}

Rig::~Rig() {
  extras_.clear();
}

Rig::Extra& Rig::add_pair(const RigAttr& attr) {
  extras_.push_back(std::make_unique<Extra>());
  Extra& extra = *extras_.back();
  extra.a = make_qp(a, attr);
  extra.b = make_qp(b, attr);
  const Joined joined = bench->join(attr.wish);
  EXPECT_TRUE(extra.a->start(joined.ends[0]));
  EXPECT_TRUE(extra.b->start(joined.ends[1]));
  return extra;
}

void Rig::step() {
  const Time now = bench->now();
  a.qp->advance(now, {});
  b.qp->advance(now, {});
  for (const auto& extra : extras_) {
    extra->a->advance(now, {});
    extra->b->advance(now, {});
  }
  a.poll();
  b.poll();
}

bool Rig::run_until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    step();
  }
  return true;
}

void Rig::settle() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  for (int i = 0; i < 20 || std::chrono::steady_clock::now() < end; ++i) step();
}

void Rig::let_responder_speak() {
  ASSERT_EQ(a.send({.id = 0, .op = op::Write{}, .is_signalled = false}), Refusal::kNone);
  settle();
}

bool Rig::run_to_end() {
  return run_until(
      [this] { return a.qp->state() == QpState::kEnded && b.qp->state() == QpState::kEnded; });
}

std::string describe(const engine::TerminateInfo& info) {
  return "reason " + std::to_string(static_cast<int>(info.reason)) + ", " +
         rdmap::to_string(info.terminate.code);
}

}  // namespace ddpsock::conformance
