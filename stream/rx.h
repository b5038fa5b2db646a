// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving: what one call finds in its order, FPDUs, what lies in memory, what a relative left.
#ifndef DDPSOCK_STREAM_RX_H_
#define DDPSOCK_STREAM_RX_H_

#include "stream/connection.h"
#include "stream/io_cursor.h"

namespace ddpsock::engine {

// Stream::recv().
Io recv_now(Connection& c, int fd, std::span<const iovec> to, int flags);

// All below: REQUIRES the receive lease.

// What lay in the peer's lane is ready. REQUIRES: its turn has come.
void reach_beyond(Connection& c);
// So many of `bytes` were copied to `to`, or skipped.
size_t show(Connection& c, const BlockChain& bytes, IoCursor& to, bool is_truncating);
size_t deliver_ready(Connection& c, IoCursor& to, bool is_truncating);
// The peer knows by that which FPDU is expected next.
void note_fpdu_read(Connection& c);
// Where the end is found: an error that was kept is told there, once, by a look too.
Io end_of_stream(Connection& c);
// How a call ends that has so many bytes and found this error when it waited for more.
Io part_or_error(Connection& c, size_t got, int error);
// The kernel says once that the connection is gone: here, while bytes may be unread.
void keep_error(Connection& c, int error);
// Of either direction, for SO_ERROR to tell. Then: is there one?
int take_kept_error(Connection& c);
bool has_kept_error(const Connection& c);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_RX_H_
