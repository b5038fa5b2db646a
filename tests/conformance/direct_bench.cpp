// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/direct_bench.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/wrap/wrap.h"
#include "tests/conformance/bench_around.h"

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
    return is_hidden_ ? n : n + WrapCq::poll(out.subspan(n));
  }
  // So that something lies in the queue when the direct way is asked.
  void hide(bool is_hidden) {
    const std::lock_guard lock(mutex_);
    is_hidden_ = is_hidden;
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
  bool is_hidden_ = false;
};

class DirectQp final : public engine::wrap::WrapQp {
 public:
  DirectQp(std::unique_ptr<engine::Qp> inner, DirectCq& cq, uint32_t depth)
      : WrapQp(std::move(inner)), cq_(cq), depth_(depth) {}

  // What goes directly needs no place in the queue. So that as many are accepted as have one, it is
  // taken to keep it until the next advance().
  engine::Posted send(std::span<const engine::SendWr> work) override {
    std::unique_lock alone(mutex_, std::defer_lock);
    if (is_awaited_ || work.size() > depth_ || !alone.try_lock()) return WrapQp::send(work);
    const bool is_limited = direct_ != 0;
    const uint32_t room = is_limited ? depth_ - std::min(depth_, direct_ + queued_) : depth_;
    const auto fitting = work.first(std::min<size_t>(work.size(), room));
    const uint32_t direct = inner().send_directly(fitting);
    engine::Posted posted{};
    if (direct < fitting.size()) posted = WrapQp::send(fitting.subspan(direct));
    direct_ += direct;
    queued_ += posted.accepted;
    posted.accepted += direct;
    if (posted.accepted == fitting.size() && fitting.size() < work.size())
      posted.reason = engine::Refusal::kQueueFull;
    return posted;
  }
  engine::Need advance(Time now, engine::Budget budget) override {
    const auto alone = enter();
    direct_ = queued_ = 0;
    // Who spins does not look at the wire.
    budget.is_spinning = std::exchange(is_spinning_, !is_spinning_);
    std::array<Completion, 3> some;
    while (const uint32_t n = inner().receive_directly(some)) cq_.add(std::span(some).first(n));
    cq_.hide(budget.is_spinning);
    engine::Need need = WrapQp::advance(now, budget);
    if (state() != engine::QpState::kRts) cq_.hide(false);
    if (budget.is_spinning && need.is_unwatched) need.deadline = now;
    return need;
  }

  void drain() override {
    const auto alone = enter();
    WrapQp::drain();
  }
  void abort(std::optional<engine::TermCode> why) override {
    const auto alone = enter();
    WrapQp::abort(why);
  }

 private:
  // Who posts without end must not keep it out.
  [[nodiscard]] std::unique_lock<std::mutex> enter() {
    is_awaited_ = true;
    std::unique_lock alone(mutex_);
    is_awaited_ = false;
    return alone;
  }

  DirectCq& cq_;
  const uint32_t depth_;
  std::mutex mutex_;
  std::atomic<bool> is_awaited_{false};
  uint32_t direct_ = 0, queued_ = 0;  // sends since the last advance()
  bool is_spinning_ = true;
};

class DirectEngine final : public engine::wrap::WrapEngine {
 public:
  explicit DirectEngine(std::unique_ptr<Engine> inner) : WrapEngine("direct", std::move(inner)) {}
  Result<std::unique_ptr<engine::Qp>, engine::SetupError> make_qp(
      const engine::QpAttr& attr) override {
    cq_ = static_cast<DirectCq*>(attr.recv_cq);
    depth_ = attr.send_depth;
    return WrapEngine::make_qp(attr);
  }

 protected:
  std::unique_ptr<engine::wrap::WrapCq> wrap_cq(std::unique_ptr<engine::Cq> cq) override {
    return std::make_unique<DirectCq>(std::move(cq));
  }
  std::unique_ptr<engine::wrap::WrapQp> wrap_qp(std::unique_ptr<engine::Qp> qp) override {
    return std::make_unique<DirectQp>(std::move(qp), *cq_, depth_);
  }

 private:
  // Of the queue pair that is made.
  DirectCq* cq_ = nullptr;
  uint32_t depth_ = 0;
};

class DirectBench final : public BenchAround {
 public:
  using BenchAround::BenchAround;
  std::unique_ptr<engine::Engine> make_engine() override {
    return std::make_unique<DirectEngine>(inner().make_engine());
  }
};

}  // namespace

std::unique_ptr<Bench> with_direct_way(std::unique_ptr<Bench> inner) {
  return std::make_unique<DirectBench>(std::move(inner));
}

}  // namespace ddpsock::conformance
