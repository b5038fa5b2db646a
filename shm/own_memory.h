// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How memory that is read by a process id is told from our own. A peer's word says which process it
// is and where the connection's secret lies there; who names us (a thread of ours, a process that
// shares our memory, an id that one of us gets later) would have us read ourselves for it.
#ifndef DDPSOCK_SHM_OWN_MEMORY_H_
#define DDPSOCK_SHM_OWN_MEMORY_H_

#include <cstdint>

namespace ddpsock::engine::shm {

// A random word of this process: memory that has it at that address is ours. A forked child has
// another one. Thread-safe, without a lock.
struct OwnMark {
  uint64_t address = 0;
  uint64_t word = 0;  // 0: there is none, and nobody's memory is told from ours

  static OwnMark get();
};

// For tests whose two ends lie in one process: our memory may be a peer's.
void take_own_memory_for_a_peers(bool may_be);
bool is_own_memory_a_peers();

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_OWN_MEMORY_H_
