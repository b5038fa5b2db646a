// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving and looking where the stream lies in memory.
#ifndef DDPSOCK_STREAM_MEMORY_RX_H_
#define DDPSOCK_STREAM_MEMORY_RX_H_

#include "stream/connection.h"
#include "stream/io_cursor.h"

namespace ddpsock::engine {

struct PeekCall;

// MemoryPart's.
Glance glance(const Connection& c);
bool want_order(Connection& c);
bool has_memory_room(const Connection& c);
bool is_open_in_memory(const Connection& c);
bool may_have_stale_bell(const Connection& c);
void settle(Connection& c, int fd);
// The peer's pollers look there, and ask the kernel only if there may be something to hear.
void note_end_in_memory(Connection& c);

// All below: REQUIRES the receive lease.

// Does what comes next lie in memory? Not any more once the peer has left, and all there was read.
bool is_next_in_memory(Connection& c, int fd);
size_t bytes_in_memory(Connection& c);
// Something may lie before the error that is to be told.
bool has_bytes_left(Connection& c, int fd);
// So many bytes were copied to `cursor`, or skipped; none is taken.
size_t look_into_memory(Connection& c, IoCursor& cursor, bool is_truncating);
// recv() with MSG_PEEK, and a poller's question.
Io peek_in_memory(Connection& c, int fd, std::span<const iovec> to, int flags, PeekCall& looking);
bool is_ready_in_memory(Connection& c, int fd);
// A millisecond. False: a signal came.
bool rest_between_looks(Connection& c, int& fd);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_MEMORY_RX_H_
