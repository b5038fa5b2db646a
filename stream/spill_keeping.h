// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which streams keep the memory of their large ring (shm/lane.h) while they are at it: those that
// need it again soon after they did, and of a process only a few, because what an idle one keeps is
// megabytes.
#ifndef DDPSOCK_STREAM_SPILL_KEEPING_H_
#define DDPSOCK_STREAM_SPILL_KEEPING_H_

#include "stream/connection.h"
#include "stream/lanes.h"

namespace ddpsock::engine {

// More of what is sent lies unread than the small ring holds: lends a piece of the large one.
// False: none is left. REQUIRES: the send lease.
bool spill(Connection& c, OutLane& lane);
// Does it have its memory, or may it keep what it gets? REQUIRES: the send lease.
bool is_spill_cheap(OutLane& lane);
// Lets go of what is kept and was not needed for a while. REQUIRES: the send lease.
void let_go_if_calm(Connection& c, OutLane& lane);
// This process sends there no more, or the stream has left the memory.
void forget_spill(Connection& c);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_SPILL_KEEPING_H_
