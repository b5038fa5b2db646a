// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a stream ends on this side: shutdown(), close() and the last holder.
#ifndef DDPSOCK_STREAM_CLOSING_H_
#define DDPSOCK_STREAM_CLOSING_H_

#include "stream/connection.h"

namespace ddpsock::engine {

// Stream::shutdown() and release().
Io shutdown(Connection& c, int fd, int how);
void release(Connection& c, int fd);
// What lies unread and is none of the stream's bytes (the peer's start-up frame, messages of the
// way back to plain TCP) must not make the kernel reset a connection that the program has read to
// the end. REQUIRES: the record is not another's yet.
void take_unread_words(Connection& c, int fd);
// The same, where each relative may take the other for the one that stays.
void take_unread_words_beside_relatives(Connection& c, int fd);
// Frees the record once nobody is inside a call: close() may come while another thread sleeps in
// recv(), and then that thread does this when it wakes.
void finish_release(Connection& c);
// Of a record that nobody holds.
void free_blocks(Blocks& blocks, Record& r);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_CLOSING_H_
