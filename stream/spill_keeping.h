// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which streams keep the memory of their large ring (shm/lane.h) while they are at it: those that
// need it again soon after they did, and of a process only a few, because what an idle one keeps is
// megabytes (decision 62).
#ifndef DDPSOCK_STREAM_SPILL_KEEPING_H_
#define DDPSOCK_STREAM_SPILL_KEEPING_H_

#include "stream/connection.h"
#include "stream/lanes.h"

namespace ddpsock::engine {

// In one process, of 4 MB each at most.
inline constexpr int kMostSpillKeepers = 16;

// What is sent has no room; once each time. It may be that memory is kept from now on. REQUIRES:
// the send lease.
void note_spill_need(Connection& c, OutLane& lane);
// Lets go of what is kept and was not needed for a while. REQUIRES: the send lease.
void let_go_if_calm(Connection& c, OutLane& lane);
// Nothing more is sent in memory, if anything was. REQUIRES: the send lease.
void end_spill(Connection& c);
// By this process neither: another stream may keep instead. From any thread.
void forget_spill(Connection& c);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_SPILL_KEEPING_H_
