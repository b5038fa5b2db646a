// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a stream leaves the memory it shares with its peer: for the wire, because a program without a
// part in it is executed or one-sided operations begin, or for good, when the connection ends.
#ifndef DDPSOCK_STREAM_LEAVING_H_
#define DDPSOCK_STREAM_LEAVING_H_

#include "stream/connection.h"

namespace ddpsock::engine {

// Stream::leave_memory(), before_exit(), judge_error(), untrue_at_end() and note_linger().
void leave_memory(Connection& c, int fd);
void before_exit(Connection& c, int fd);
int judge_error(Connection& c, int error);
short untrue_at_end(const Connection& c);
void note_linger(Connection& c, bool is_resetting);

// Closes both lanes, and gives back what options memory had set; FPDUs follow. False: no bytes can
// lie in shared memory, now or later. `is_sender`: the caller holds the send lease, and is not in
// the middle of something.
bool close_lanes(Connection& c, int fd, bool is_sender = false);
// REQUIRES: the send lease.
void send_fpdus_for_good(Connection& c, int fd);
void leave_as_writer(Connection& c, int fd);
// REQUIRES: the send lease. 0, or the errno value for a call that has FPDUs to send.
int send_on_wire_again(Connection& c, int fd);
// What lies in the lane is the inbox's. REQUIRES: the receive lease, and that leave_memory() has
// closed the lane.
int empty_lane(Connection& c, int fd);
// What comes lies in memory that this process has not mapped, because a thread slept in recv when
// its program was executed. REQUIRES: the receive lease.
int go_on_beyond_memory(Connection& c);
// Takes octets that are counted, but for `stays`, also those under way. False: they have not come.
// REQUIRES: the receive lease, and that this process has mapped the memory.
bool take_counted_octets(Connection& c, int fd, uint64_t stays, Duration patience);
// The octets in the place of what was in memory. They may be in the buffer, or still on their way,
// or too many for once: false, with errno. REQUIRES: the receive lease.
bool take_octets_beyond(Connection& c, int fd);

// The connection ends. Octets left unread would make the kernel reset it; bytes left unread shall.
void end_in_memory(Connection& c, int fd);
// A FIN is about to follow what is published, also where another thread sleeps in a send.
void close_for_sending(Connection& c);
// Nothing that comes from now on is wanted: what the peer sends goes to the kernel, whose answer is
// the reset that TCP gives. What lies in memory can be read.
void close_for_receiving(Connection& c);
// What lies in memory is not delivered, and the peer shall know by more than an end.
void fail_in_memory(Connection& c);
// The peer is gone, and its kernel says so by a reset. Was it for octets alone? It had read all
// that was sent to it, but for the last `since` bytes, and did not ask for a reset.
bool is_reset_in_vain(const Connection& c, size_t since);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_LEAVING_H_
