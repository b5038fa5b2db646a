// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/spill_keeping.h"

#include <utility>

#include "base/clock.h"

namespace ddpsock::engine {
namespace {

// Who needs it twice within this needs it again; and who has gone round it and is not done.
constexpr Duration kOften = Duration::from_ms(100);
// So long without, and the next message lets go.
constexpr Duration kCalm = Duration::from_ms(1000);

constinit std::atomic<int> keepers{0};

bool may_keep(Connection& c) {
  if (keepers.load(std::memory_order_relaxed) >= kMostSpillKeepers) return c.is_spill_keeper;
  if (c.is_spill_keeper.exchange(true)) return true;
  if (keepers.fetch_add(1) < kMostSpillKeepers) return true;
  forget_spill(c);
  return false;
}

}  // namespace

void note_spill_need(Connection& c, OutLane& lane) {
  const Time now = base::coarse_now();
  const Time last = std::exchange(c.r.memory.needed_spill_at, now);
  if (lane->keeps_spill()) return;
  const bool is_often = lane->is_spilling() ? lane->has_come_round() : now - last < kOften;
  if (is_often && may_keep(c)) lane->keep_spill();
}

void let_go_if_calm(Connection& c, OutLane& lane) {
  if (!lane->keeps_spill()) [[likely]] {
    // A relative may have let go.
    if (c.is_spill_keeper.load(std::memory_order_relaxed)) forget_spill(c);
    return;
  }
  if (base::coarse_now() - c.r.memory.needed_spill_at < kCalm) return;
  if (lane->let_go_of_spill()) forget_spill(c);
}

void end_spill(Connection& c) {
  forget_spill(c);
  if (c.segment.load(std::memory_order_acquire) == nullptr || !c.r.memory.tx.keeps_spill) return;
  OutLane lane(c);
  if (!lane->let_go_of_spill()) lane->keep_no_more();
}

void forget_spill(Connection& c) {
  if (c.is_spill_keeper.exchange(false)) keepers.fetch_sub(1);
}

}  // namespace ddpsock::engine
