// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving where the stream shares its connection with a queue pair.
#ifndef DDPSOCK_STREAM_ONE_SIDED_RX_H_
#define DDPSOCK_STREAM_ONE_SIDED_RX_H_

#include "stream/connection.h"
#include "stream/patience.h"

namespace ddpsock::engine {

struct PeekCall;

// OneSidedWay::receive_fpdus().
Result<size_t> receive_fpdus(Connection& c, int fd, std::span<const MutBytes> to);
// Stream::recv(), without a lease. `looking` is there with MSG_PEEK.
Io recv_one_sided(Connection& c, int fd, std::span<const iovec> to, int flags, PeekCall* looking);

// All below: REQUIRES the receive lease.
size_t readable_one_sided(Connection& c, int fd);
bool is_recv_ready_one_sided(Connection& c, int fd);
// Sleeps until the kernel has more than is accounted for, with its own rules for signals, timeouts
// and cancellation. 0, an errno value, or kEndOfStream: nothing more comes.
int await_more(Connection& c, int& fd, int flags, Patience& patience, bool has_part);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_ONE_SIDED_RX_H_
