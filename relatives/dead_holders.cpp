// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/dead_holders.h"

#include "base/clock.h"
#include "relatives/arena_layout.h"
#include "relatives/family.h"
#include "relatives/held_records.h"
#include "relatives/unborn.h"

namespace ddpsock::engine {
namespace {

constexpr uint32_t kNowhere = ProcessTable::kNowhere;
constexpr Duration kBetweenCollections = Duration::from_ms(100);

}  // namespace

void DeadHolders::collect() {
  if (family_.is_silent()) return;
  give_up_unborn();
  give_up_kept();
  for (uint32_t p = 0; p < kNowhere; ++p) {
    const uint32_t name = processes_.name_of(p);
    const int pid = processes_.pid(p).load(std::memory_order_acquire);
    if (pid != 0 && p != family_.known_place() && processes_.is_gone(p) &&
        !processes_.may_have_heirs(p))
      free_place(p, pid, name);
  }
}

bool DeadHolders::collect_if_due() {
  int64_t last = last_collection_.load(std::memory_order_relaxed);
  const int64_t now = base::now().ns;
  if (last != 0 && now - last < kBetweenCollections.ns) return false;
  if (!last_collection_.compare_exchange_strong(last, now)) return false;
  collect();
  return true;
}

void DeadHolders::give_up_unborn() {
  if (!unborn.has_perhaps_failed) return;
  unborn.has_perhaps_failed = false;
  if (unborn.place != kNowhere) free_place(unborn.place, kUnborn, unborn.name);
}

// What was to be given up while there may have been relatives that nobody knew of.
void DeadHolders::give_up_kept() {
  if (!held_.has_kept() || family_.may_have_unknown_children()) return;
  held_.forget_kept();
  const uint32_t me = family_.my_place();
  if (me == kNowhere) return;
  for (uint32_t i = 0; i < slots_.rotation(); ++i)
    if (slots_.is_live(i) && slots_.head(i)->holders.has(me) && !held_.has(i)) drop_hold(i, me);
}

// `place` does not hold record `i` any more, nor is about to free it; frees it if nobody does.
void DeadHolders::drop_hold(uint32_t i, uint32_t place) {
  RecordHead* h = slots_.head(i);
  if (h == nullptr) return;
  const uint32_t me = family_.my_place();
  const bool is_last = h->holders.has(place) && h->give_up(place, me);
  if (!is_last && !h->take_over(place, me)) return;
  if (free_contents_ != nullptr) free_contents_(blocks_, slots_.record(i));
  slots_.free(i);
}

// One at a time, so that the place is not another's before the second has gone; where one has died
// over it, the next begins again.
void DeadHolders::free_place(uint32_t index, int pid, uint32_t name) {
  HolderPlace& place = processes_.at(index);
  const auto outcome = place.freeing.try_take_over();
  if (outcome != base::Lease::Outcome::kAcquired && outcome != base::Lease::Outcome::kInherited)
    return;
  if (processes_.name_of(index) == name && pid != 0 &&
      processes_.pid(index).compare_exchange_strong(pid, kLeaving)) {
    for (uint32_t i = 0; i < slots_.rotation(); ++i) drop_hold(i, index);
    processes_.make_ready(index);
  }
  place.freeing.release();
}

}  // namespace ddpsock::engine
