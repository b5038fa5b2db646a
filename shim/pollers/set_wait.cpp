// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/set_wait.h"

#include "base/process.h"
#include "shim/pollers/memory_bells.h"

namespace ddpsock::shim {

SetWait::SetWait(WatchedSet& watched, int set)
    : Unfinished([](base::Unfinished& wait) { static_cast<SetWait&>(wait).end(); }),
      set_(watched),
      generation_(base::process_generation()) {
  begin();
  set_.waiters().enter();
  is_of_set_ = set_.place().is_of(set);
  if (!is_of_set_) return;
  settle_elsewhere(&set_);
  if (set_.waiters().note_last(base::thread_id())) set_.tell_all();
}

// In a child that a signal handler forked meanwhile nobody is counted.
void SetWait::end() {
  if (base::process_generation() != generation_) return;
  if (set_.waiters().leave() && set_.place().is_left()) set_.free_if_left();
}

}  // namespace ddpsock::shim
