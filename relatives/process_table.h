// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_PROCESS_TABLE_H_
#define DDPSOCK_RELATIVES_PROCESS_TABLE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "relatives/holder_pid.h"
#include "relatives/holder_set.h"
#include "relatives/life.h"

namespace ddpsock::engine {

struct ArenaHead;
class ArenaFile;
struct HolderPlace;

// The arena's table of processes: each that holds records has a place there, proved to be in use,
// or not to be, by a lock on the arena's file (life.h), or by its pid for those of its pid
// namespace. Any thread may call; no function touches errno.
class ProcessTable {
 public:
  static constexpr uint32_t kNowhere = HolderSet::kMax;

  explicit ProcessTable(const ArenaFile& file);

  // A free place for `pid`, or kNowhere. By one atomic step: who is killed here has a place or has
  // none.
  uint32_t claim(int pid);
  // Free from now on. REQUIRES: HolderPlace::freeing; what was held there is given up.
  void make_ready(uint32_t place);
  std::atomic<int>& pid(uint32_t place) const;
  HolderPlace& at(uint32_t place) const;

  // Of who has the place now: never 0, and for a very long time never that of another who had it.
  uint32_t name_of(uint32_t place) const;
  static uint32_t place_of(uint32_t name) { return name % kNowhere; }

  // Has whoever has the place ended? Proved, that is: what cannot be known is not so.
  bool is_gone(uint32_t place) const;
  // Has a child that nobody foresaw outlived it, or may it have?
  bool may_have_heirs(uint32_t place) const;
  // Has its process lost the place's own lock?
  bool has_lost_lock(uint32_t place) const;

 private:
  LifeLock::State look_at(off_t byte) const;

  const ArenaFile& file_;
  ArenaHead& shared_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_PROCESS_TABLE_H_
