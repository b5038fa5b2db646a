// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/fault.h"

#include <mutex>
#include <random>

#include "engine/wrap/wrap.h"

namespace ddpsock::engine::wrap {
namespace {

constexpr uint32_t kMillion = 1'000'000;
constexpr uint32_t kTrickle = 200;  // bytes: less than most messages

// The dice of one engine; thread-safe.
class Dice {
 public:
  Dice(const FaultRates& r, uint64_t seed) : rates(r), random_(seed) {}

  bool falls(uint32_t in_a_million) { return in_a_million != 0 && below(kMillion) < in_a_million; }
  uint64_t below(uint64_t limit) {
    const std::lock_guard lock(mutex_);
    return random_() % limit;
  }

  const FaultRates rates;

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
};

class FaultCq final : public WrapCq {
 public:
  FaultCq(std::unique_ptr<Cq> inner, Dice& dice) : WrapCq(std::move(inner)), dice_(dice) {}

  uint32_t poll(std::span<Completion> out) override {
    const uint32_t n = WrapCq::poll(out);
    for (Completion& c : out.first(n)) {
      if (c.status == WorkStatus::kOk && dice_.falls(dice_.rates.fail_completion)) {
        c.status = WorkStatus::kLocalError;
      }
    }
    return n;
  }

 private:
  Dice& dice_;
};

class FaultQp final : public WrapQp {
 public:
  FaultQp(std::unique_ptr<Qp> inner, Dice& dice) : WrapQp(std::move(inner)), dice_(dice) {}

  Posted send(std::span<const SendWr> work) override {
    return cut(work, [this](auto prefix) { return WrapQp::send(prefix); });
  }
  Posted recv(std::span<const RecvWr> work) override {
    return cut(work, [this](auto prefix) { return WrapQp::recv(prefix); });
  }

  Need advance(Time now, Budget budget) override {
    if (dice_.falls(dice_.rates.stall)) return {.wants_readable = true, .deadline = now};
    if (dice_.falls(dice_.rates.drop)) abort(std::nullopt);
    if (dice_.falls(dice_.rates.trickle)) budget.bytes = kTrickle;
    return WrapQp::advance(now, budget);
  }

 private:
  template <typename Wr, typename Post>
  Posted cut(std::span<const Wr> work, const Post& post) {
    if (work.empty() || !dice_.falls(dice_.rates.refuse)) return post(work);
    Posted posted = post(work.first(dice_.below(work.size())));
    if (posted.reason == Refusal::kNone) posted.reason = Refusal::kQueueFull;
    return posted;
  }

  Dice& dice_;
};

class FaultEngine final : public WrapEngine {
 public:
  FaultEngine(std::unique_ptr<Engine> inner, const FaultRates& rates, uint64_t seed)
      : WrapEngine("fault", std::move(inner)), dice_(rates, seed) {}

 protected:
  std::unique_ptr<WrapCq> wrap_cq(std::unique_ptr<Cq> cq) override {
    return std::unique_ptr<WrapCq>(new (std::nothrow) FaultCq(std::move(cq), dice_));
  }
  std::unique_ptr<WrapQp> wrap_qp(std::unique_ptr<Qp> qp) override {
    return std::unique_ptr<WrapQp>(new (std::nothrow) FaultQp(std::move(qp), dice_));
  }

 private:
  Dice dice_;
};

}  // namespace

std::unique_ptr<Engine> fault(std::unique_ptr<Engine> inner, const FaultRates& rates,
                              uint64_t seed) {
  return std::unique_ptr<Engine>(new (std::nothrow) FaultEngine(std::move(inner), rates, seed));
}

}  // namespace ddpsock::engine::wrap
