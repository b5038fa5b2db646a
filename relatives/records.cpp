// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/records.h"

#include <algorithm>
#include <cstring>

#include "relatives/arena_layout.h"
#include "relatives/dead_holders.h"
#include "relatives/family.h"
#include "relatives/held_records.h"

namespace ddpsock::engine {
namespace {

constexpr uint32_t kNowhere = ProcessTable::kNowhere;

}  // namespace

void* Records::allocate() {
  const uint32_t live = shared_.records_live.fetch_add(1, std::memory_order_relaxed) + 1;
  uint32_t round = slots_.rotation();
  if (live > round / 2 && round < slots_.count()) {
    // Before more memory comes into use, what dead relatives held.
    if (!dead_.collect_if_due() || slots_.live() > round / 2) {
      round = std::min(round * 2, slots_.count());
      shared_.rotation.store(round, std::memory_order_relaxed);
    }
  }
  void* taken = take_free(round);
  if (taken == nullptr && dead_.collect_if_due()) taken = take_free(round);
  if (taken == nullptr) shared_.records_live.fetch_sub(1, std::memory_order_relaxed);
  return taken;
}

void* Records::take_free(uint32_t round) {
  const uint32_t me = family_.my_place();
  for (uint32_t tries = 0; tries < round; ++tries) {
    const uint32_t i = shared_.record_cursor.fetch_add(1, std::memory_order_relaxed) % round;
    RecordHead* h = slots_.head(i);
    if (h == nullptr || !h->try_use()) continue;
    held_.add(i);
    // Process table full: nobody is noted as holder, so the record is never collected, only
    // released.
    if (me < kNowhere) h->holders.add(me);
    void* record = slots_.record(i);
    std::memset(record, 0, RecordSlots::kRecordSize);
    return record;
  }
  return nullptr;
}

bool Records::has_room() {
  if (slots_.live() < slots_.count()) return true;
  return dead_.collect_if_due() && slots_.live() < slots_.count();
}

bool Records::hold(uint32_t i) {
  const uint32_t me = family_.my_place();
  held_.add(i);
  if (me < kNowhere) slots_.head(i)->holders.add(me);
  if (slots_.is_live(i)) return true;
  let_go(i);
  return false;
}

void Records::let_go(uint32_t i) {
  const uint32_t me = family_.my_place();
  held_.remove(i);
  if (me < kNowhere) slots_.head(i)->holders.remove(me);
}

bool Records::release(void* rec) {
  const uint32_t me = family_.my_place();
  const uint32_t i = slots_.index_of(rec);
  held_.remove(i);
  RecordHead& h = *slots_.head(i);
  if (me == kNowhere) return h.holders.is_empty() && h.begin_free(me);
  if (family_.may_have_unknown_children()) {
    held_.note_kept();
    return false;
  }
  return h.give_up(me, me);
}

bool Records::is_sole_holder(const void* rec) {
  const RecordHead& h = *slots_.head(slots_.index_of(rec));
  const uint32_t me = family_.my_place();
  return me < kNowhere && !h.is_held_by_others(me) && !family_.may_have_unknown_children();
}

bool Records::may_be_shared(const void* rec) {
  if (!shared_.has_heirs.load(std::memory_order_relaxed)) return false;
  const RecordHead& h = *slots_.head(slots_.index_of(rec));
  const auto is_shared = [&] { return h.is_held_by_others(family_.my_place()); };
  // A child that has ended, or executed a program, is in the table until somebody looks.
  return is_shared() && (!dead_.collect_if_due() || is_shared());
}

}  // namespace ddpsock::engine
