// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// When a call of this process has last come back that was allowed to sleep: a clock that stands
// still where nobody sleeps, so that reading it costs a load.
#ifndef DDPSOCK_BASE_WAKE_H_
#define DDPSOCK_BASE_WAKE_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::base {

// In ticks of CLOCK_MONOTONIC_COARSE, a few ms each: written so often at most, whoever sleeps.
inline constinit std::atomic<int64_t> wake_tick{0};

inline int64_t last_wake() {
  return wake_tick.load(std::memory_order_relaxed);
}

// Behind every call that may have slept. Async-signal-safe; keeps errno.
void note_wake();

inline int woken(int result, bool may_have_slept) {
  if (may_have_slept) note_wake();
  return result;
}

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_WAKE_H_
