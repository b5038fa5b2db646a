// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/clock.h"

#include <time.h>

namespace ddpsock::base {

Time now() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return {int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec};
}

}  // namespace ddpsock::base
