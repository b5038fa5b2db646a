// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sending as FPDUs.
#ifndef DDPSOCK_STREAM_TX_H_
#define DDPSOCK_STREAM_TX_H_

#include <optional>

#include "stream/connection.h"
#include "stream/descriptor.h"
#include "stream/io_cursor.h"

namespace ddpsock::engine {

// The kernel's own EPIPE and SIGPIPE. REQUIRES: the sending side has been shut down, or another
// thread is about to.
Io broken_pipe(int fd, int flags);
// Stream::send().
Io send_now(Connection& c, int fd, std::span<const iovec> from, int flags);

// All below: REQUIRES the send lease.

// For a call that ends with `error`, having sent so many bytes.
Io sent_or_error(Connection& c, size_t sent, int error);
// What the kernel says once, for the next call to tell; nothing else is kept.
void keep_send_error(Connection& c, int error);
// The same of a call that has sent something. EPIPE is kept too: a reset by a peer that had ended
// its stream.
void keep_behind_part(Connection& c, int error);
// That, told now, with its signal; 0: nothing. A reader at its end may tell it first.
int tell_send_error(Connection& c, int fd, int flags);
// Hands over the rest of an FPDU that the kernel cut: nothing may be sent before it. EAGAIN: not
// all; with `may_wait` it has waited at most 2 s. Of other errors there is no rest any more, and
// whoever hears them is the only one.
int flush_tail(Connection& c, int fd, bool may_wait);
// The same, if there is such a rest, for a send of the program's: EPIPE is left for that to meet,
// with its signal.
int flush_before_send(Connection& c, int fd, int flags);
// What the kernel has not taken of FPDUs that it has begun.
int keep_tail(Connection& c, int fd, IoCursor bytes, size_t size);
// The kernel refused and the call may wait, until `deadline`, which the first wait sets. 0: try
// again.
int await_room(Connection& c, Descriptor& fd, std::optional<Time>& deadline, bool has_sent);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_TX_H_
