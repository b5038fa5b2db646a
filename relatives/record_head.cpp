// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/record_head.h"

namespace ddpsock::engine {

bool RecordHead::try_use() {
  uint32_t expected = kFree;
  return state.compare_exchange_strong(expected, kLive, std::memory_order_acq_rel);
}

// That it is `me` is said by the same step, so that others can go on if it dies over it, and nobody
// does before.
bool RecordHead::begin_free(uint32_t me) {
  uint32_t live = kLive;
  return !has_unlisted_holder.load() &&
         state.compare_exchange_strong(live, kDying + me, std::memory_order_acq_rel);
}

// Who frees it is noted first, so that no moment leaves it live and without a holder.
bool RecordHead::give_up(uint32_t place, uint32_t me) {
  const bool is_mine = holders.is_only(place) && begin_free(me);
  holders.remove(place);
  return is_mine || (holders.is_empty() && begin_free(me));
}

bool RecordHead::take_over(uint32_t place, uint32_t me) {
  uint32_t by_place = kDying + place;
  return place != me && state.load(std::memory_order_relaxed) == by_place &&
         state.compare_exchange_strong(by_place, kDying + me, std::memory_order_acq_rel);
}

void RecordHead::free() {
  holders.clear();
  state.store(kFree, std::memory_order_release);
}

}  // namespace ddpsock::engine
