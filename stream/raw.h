// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The way back to plain TCP (doc/stream-protocol.md, "Raw"): the messages, and what the side does
// that is asked. departure.h is the side that asks.
#ifndef DDPSOCK_STREAM_RAW_H_
#define DDPSOCK_STREAM_RAW_H_

#include "stream/connection.h"

namespace ddpsock::engine {

struct RawMessage;

// REQUIRES: the header of an FPDU.
bool is_raw_message(const Connection& c, const uint8_t* fpdu);
// One that is whole and has been checked. REQUIRES: the receive lease. 0, EPROTOTYPE: the peer's
// direction is plain from here on; or the errno value of a failure.
int take_raw_message(Connection& c, int fd, Bytes ulpdu);
// The peer wants its direction and ours plain. What cannot be done now is not answered: it asks
// again, or gives up. REQUIRES: both leases.
void answer_raw(Connection& c, int fd, const RawMessage& question);
// REQUIRES: the send lease, no tail. 0, EAGAIN, or another errno value.
int send_mark(Connection& c, int fd, Bytes repeated);
// With MSG_MORE more follows at once; without, it is pushed.
int send_raw_message(Connection& c, int fd, uint32_t kind, uint32_t number, Bytes body,
                     Bytes behind, int flags = 0);
// An FPDU follows at once. The same of it.
int send_memory_offer(Connection& c, int fd, const stream::MemoryOffer& offer);
void note_turning(Connection& c);
// REQUIRES: both leases. What the kernel was told for our sake is taken back; not by who has lost
// the number (-1), whose call must not go on as libc's.
bool become_plain(Connection& c, int fd);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_RAW_H_
