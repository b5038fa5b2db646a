// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A stream in shared memory beside whose bytes a queue pair has memory of its own
// (doc/decisions/0065): bytes stay where they are, and so do their calls, but for what order asks.
// A send hands over what was posted before it; a receive call returns when what lies there is in
// place, all of which was there before its bytes were. Bells of the queue pair are octets as the
// stream's are.
#ifndef DDPSOCK_STREAM_LINK_H_
#define DDPSOCK_STREAM_LINK_H_

#include <optional>

#include "stream/connection.h"
#include "stream/one_sided_way.h"

namespace ddpsock::engine {

// False: its part of the memory was used, or is out of reach.
bool may_begin_link(const Connection& c);
// OneSidedWay::decide(): by memory, if the stream's bytes can be there at both ends; else between
// chunks, and bytes with it. REQUIRES: this process has the queue pair.
Decision decide_way(Connection& c, int fd, Haste haste);
// An FPDU of the peer's queue pair has come between chunks, so that it is decided.
void note_decided_by_wire(Connection& c);
// The stream is about to leave its memory: queue pairs that begin later go with it.
void keep_queue_pairs_out(Connection& c);

// OneSidedWay::memory().
std::optional<QueuePairMemory> memory_of_link(const Connection& c);
// BellWay's functions.
Status<> ring_link(Connection& c, int fd);
Result<bool> heed_link(Connection& c, int fd);
void fail_by_link(Connection& c, int fd, int error, const char* why);

// A receive call is about to return `io`, with bytes. REQUIRES: no lease.
Io behind_link(Connection& c, Io io);
// A send call has begun; 0: what was posted before has been handed over. Otherwise an errno value
// for the call; where that is EAGAIN the kernel refuses, too. REQUIRES: no lease.
int flush_link(Connection& c, int& fd, int flags);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_LINK_H_
