// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RDMAP_QP_COUNTERS_H_
#define DDPSOCK_RDMAP_QP_COUNTERS_H_

#include <atomic>
#include <cstdint>

#include "base/counter.h"

namespace ddpsock::rdmap {

// What a queue pair has done so far: written under its lock (what was posted: by who posts), read
// at any time.
struct QpCounters {
  // Bytes of Sends, Immediate Data, Writes and the answers to Reads; segments of every kind.
  base::Counter bytes_sent, segments_sent;
  base::Counter sends_posted, sends_completed;  // all that was queued but receives
  base::Counter sends_failed;                   // of those completed
  // In neither of the two, and to be added to both by who shows them: what went directly is counted
  // by one thread at a time.
  base::Counter sends_direct;
  base::Counter bytes_received, segments_received;
  base::Counter receives_posted, receives_completed, receives_failed;  // shared ones once taken
  base::Counter crcs_checked;                                          // by the engine
  std::atomic<uint32_t> max_payload{0};  // of a Send in one FPDU; by the engine, 0: not known yet
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_QP_COUNTERS_H_
