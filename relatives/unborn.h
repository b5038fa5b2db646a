// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_UNBORN_H_
#define DDPSOCK_RELATIVES_UNBORN_H_

#include <cstdint>

#include "relatives/process_table.h"

namespace ddpsock::engine {

// The place that was made for the child which this thread is about to have: two threads may fork at
// once, and the child is a copy of its own.
struct Unborn {
  uint32_t place = ProcessTable::kNowhere;
  uint32_t name = 0;
  // fork() runs its parent's handlers also where it has failed, and then with errno set. It may
  // have been another handler that set errno: then the child is being born.
  bool has_perhaps_failed = false;
};
[[gnu::tls_model("initial-exec")]] inline thread_local constinit Unborn unborn;

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_UNBORN_H_
