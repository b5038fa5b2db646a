// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sending where the stream lies in memory.
#ifndef DDPSOCK_STREAM_MEMORY_TX_H_
#define DDPSOCK_STREAM_MEMORY_TX_H_

#include "stream/connection.h"

namespace ddpsock::engine {

// REQUIRES: the send lease, our bytes travel in memory.
Io send_in_memory(Connection& c, int fd, std::span<const iovec> from, int flags);
// REQUIRES, both: the send lease. A peer that is awake is not rung, and one that was killed awake
// does not say so: the kernel is to be asked with the next publication.
bool is_look_at_peer_due(const Memory& m);
// The end of a call that has published `n` bytes, for which the peer is to be rung.
Io ring_for_published(Connection& c, int fd, size_t n, int flags);
// Stream::is_send_ready().
bool is_send_ready(Connection& c, int fd);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_MEMORY_TX_H_
