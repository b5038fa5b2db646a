// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The program's calls while the connection is on its way back to plain TCP: what was read before
// the peer's marker comes first, what comes twice is passed over, then the kernel serves.
#ifndef DDPSOCK_STREAM_TURNING_H_
#define DDPSOCK_STREAM_TURNING_H_

#include "stream/connection.h"
#include "stream/io_cursor.h"
#include "stream/patience.h"

namespace ddpsock::engine {

struct PeekCall;

// REQUIRES: the lease of the direction. EPROTOTYPE: the call is libc's from here on.

// Also of a stream that has failed, or is plain already.
Io send_turned(Connection& c, int number, std::span<const iovec> from, int flags);
// `got` bytes of the call have been delivered before.
Io recv_turned(Connection& c, int fd, IoCursor& to, int flags, size_t got, Patience& patience);
Io peek_turned(Connection& c, int fd, std::span<const iovec> to, int flags, PeekCall& looking);
Io readable_turned(Connection& c, int fd);
bool is_recv_ready_turned(Connection& c, int fd);
bool is_recv_ready_plain(const Connection& c, int fd);
// The program's SO_RCVLOWAT, for what the kernel is to count.
void give_back_low_water(const Connection& c, int fd);

// Before a read that sleeps: 0 where that may, by the kernel's own timeout; or the call has slept
// before, and this has waited for what is left of its time. `has_part`: of what is wanted; then a
// signal ends the wait.
int await_again(Connection& c, int& fd, int flags, Patience& patience, bool has_part);
// Passes over what comes twice, as far as it is there. False: there is more, or `io`.
bool pass_over_what_is_there(Connection& c, int fd, Io& io);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_TURNING_H_
