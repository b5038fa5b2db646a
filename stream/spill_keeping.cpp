// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/spill_keeping.h"

#include <utility>

#include "base/clock.h"

namespace ddpsock::engine {
namespace {

// Two spills that begin within this are a habit.
constexpr Duration kOften = Duration::from_ms(100);
// So long without one, and the next message lets go.
constexpr Duration kCalm = Duration::from_ms(1000);
// In one process, of 4 MB each at most.
constexpr int kMostKept = 16;

constinit std::atomic<int> kept{0};

bool may_keep(Connection& c) {
  if (c.keeps_spill.load(std::memory_order_relaxed)) return true;
  if (kept.fetch_add(1, std::memory_order_relaxed) >= kMostKept) {
    kept.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  c.keeps_spill.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace

bool spill(Connection& c, OutLane& lane) {
  if (!lane->is_spilling()) {
    const Time now = base::coarse_now();
    const bool is_often = now - std::exchange(c.r.memory.spilt_at, now) < kOften;
    if (is_often && !lane->keeps_spill() && may_keep(c)) lane->keep_spill();
  }
  return lane->spill();
}

bool is_spill_cheap(OutLane& lane) {
  return lane->keeps_spill() || kept.load(std::memory_order_relaxed) < kMostKept;
}

void let_go_if_calm(Connection& c, OutLane& lane) {
  if (!lane->keeps_spill() || lane->is_spilling()) [[likely]]
    return;
  if (base::coarse_now() - c.r.memory.spilt_at < kCalm) return;
  lane->let_go_of_spill();
  forget_spill(c);
}

void forget_spill(Connection& c) {
  if (c.keeps_spill.exchange(false)) kept.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace ddpsock::engine
