// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/clock.h"

#include <time.h>

#include "base/wake.h"

namespace ddpsock::base {

Time now() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return {int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec};
}

Time coarse_now() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
  return {int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec};
}

void note_wake() {
  const int64_t tick = coarse_now().ns;
  if (wake_tick.load(std::memory_order_relaxed) != tick)
    wake_tick.store(tick, std::memory_order_relaxed);
}

}  // namespace ddpsock::base
