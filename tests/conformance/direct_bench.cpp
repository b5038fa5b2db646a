// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/direct_bench.h"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <utility>

#include "engine/wrap/wrap.h"

namespace ddpsock::conformance {
namespace {

using engine::Completion;

// What came directly comes before what the queue gets later.
class DirectCq final : public engine::wrap::WrapCq {
 public:
  using WrapCq::WrapCq;
  uint32_t poll(std::span<Completion> out) override {
    const std::lock_guard lock(mutex_);
    uint32_t n = 0;
    for (; n < out.size() && !direct_.empty(); direct_.pop_front()) out[n++] = direct_.front();
    return n + WrapCq::poll(out.subspan(n));
  }
  bool has_any() const override {
    const std::lock_guard lock(mutex_);
    return !direct_.empty() || WrapCq::has_any();
  }
  void add(std::span<const Completion> completions) {
    const std::lock_guard lock(mutex_);
    direct_.insert(direct_.end(), completions.begin(), completions.end());
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Completion> direct_;
};

class DirectQp final : public engine::wrap::WrapQp {
 public:
  DirectQp(std::unique_ptr<engine::Qp> inner, DirectCq& cq) : WrapQp(std::move(inner)), cq_(cq) {}

  engine::Posted send(std::span<const engine::SendWr> work) override {
    uint32_t direct = 0;
    if (const std::unique_lock alone(mutex_, std::try_to_lock); alone)
      direct = inner().send_directly(work);
    if (direct == work.size()) return {direct, engine::Refusal::kNone};
    engine::Posted posted = WrapQp::send(work.subspan(direct));
    posted.accepted += direct;
    return posted;
  }
  engine::Need advance(Time now, engine::Budget budget) override {
    const std::unique_lock alone(mutex_, std::try_to_lock);
    if (!alone) return {.is_busy = true};
    // Who spins does not look at the wire.
    budget.is_spinning = std::exchange(is_spinning_, !is_spinning_);
    std::array<Completion, 3> some;
    while (const uint32_t n = inner().receive_directly(some)) cq_.add(std::span(some).first(n));
    engine::Need need = WrapQp::advance(now, budget);
    if (budget.is_spinning && need.is_unwatched) need.deadline = now;
    return need;
  }

 private:
  DirectCq& cq_;
  std::mutex mutex_;
  bool is_spinning_ = true;
};

class DirectEngine final : public engine::wrap::WrapEngine {
 public:
  explicit DirectEngine(std::unique_ptr<Engine> inner) : WrapEngine("direct", std::move(inner)) {}
  Result<std::unique_ptr<engine::Qp>, engine::SetupError> make_qp(
      const engine::QpAttr& attr) override {
    auto made = WrapEngine::make_qp(attr);
    if (!made) return made;
    return std::make_unique<DirectQp>(std::move(*made), static_cast<DirectCq&>(*attr.recv_cq));
  }

 protected:
  std::unique_ptr<engine::wrap::WrapCq> wrap_cq(std::unique_ptr<engine::Cq> cq) override {
    return std::make_unique<DirectCq>(std::move(cq));
  }
};

class DirectBench final : public Bench {
 public:
  explicit DirectBench(std::unique_ptr<Bench> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<engine::Engine> make_engine() override {
    return std::make_unique<DirectEngine>(inner_->make_engine());
  }
  Joined join(const Wish& wish) override { return inner_->join(wish); }
  void inject(engine::LowerLayer end, Bytes octets) override { inner_->inject(end, octets); }
  void finish(engine::LowerLayer end) override { inner_->finish(end); }
  void cut(engine::LowerLayer end) override { inner_->cut(end); }
  Time now() override { return inner_->now(); }

 private:
  std::unique_ptr<Bench> inner_;
};

}  // namespace

std::unique_ptr<Bench> with_direct_way(std::unique_ptr<Bench> inner) {
  return std::make_unique<DirectBench>(std::move(inner));
}

}  // namespace ddpsock::conformance
