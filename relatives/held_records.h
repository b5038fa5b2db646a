// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_HELD_RECORDS_H_
#define DDPSOCK_RELATIVES_HELD_RECORDS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "relatives/record_slots.h"

namespace ddpsock::engine {

// Which records this process holds, in its private memory: a child that nobody foresaw, which is in
// no set of holders, has its parent's. Any thread may call.
class HeldRecords {
 public:
  HeldRecords(RecordSlots& slots, ArenaHead& shared) : slots_(slots), shared_(shared) {}

  bool has(uint32_t i) const { return (held_[i / 64].load() >> (i % 64) & 1) != 0; }
  void add(uint32_t i) { held_[i / 64].fetch_or(uint64_t{1} << (i % 64)); }
  void remove(uint32_t i) { held_[i / 64].fetch_and(~(uint64_t{1} << (i % 64))); }

  // Who is at `place` in the table of processes holds them all too.
  void hold_all_for(uint32_t place);
  // There is no place left: all of them may be in use where no holder is noted, and are never given
  // back.
  void keep_for_unlisted();

  // Some of which this process holds no more are kept, for relatives that nobody may know of.
  void note_kept() { has_kept_.store(true); }
  void forget_kept() { has_kept_.store(false); }
  bool has_kept() const { return has_kept_.load(); }

 private:
  RecordSlots& slots_;
  ArenaHead& shared_;
  std::array<std::atomic<uint64_t>, RecordSlots::kMaxRecords / 64> held_{};
  std::atomic<bool> has_kept_{false};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_HELD_RECORDS_H_
