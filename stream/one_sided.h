// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations of a stream: how a queue pair comes to share its connection, and sending
// (doc/decisions/0034).
#ifndef DDPSOCK_STREAM_ONE_SIDED_H_
#define DDPSOCK_STREAM_ONE_SIDED_H_

#include "stream/connection.h"

namespace ddpsock::engine {

// OneSidedWay's functions.
Status<> begin_one_sided(Connection& c, int fd, OneSided& queue_pair);
void end_one_sided(Connection& c);
Result<bool> one_sided_crc(Connection& c, int fd);
Status<> announce(Connection& c, int fd);
Result<size_t> send_fpdus(Connection& c, int fd, std::span<const Bytes> from);

// Stream::send() beside a queue pair.
Io send_one_sided(Connection& c, int fd, std::span<const iovec> from, int flags);
void wake_waiting(Connection& c, bool is_send);

// What to do with an FPDU that is not the stream's. REQUIRES: the receive lease.
enum class Offered : uint8_t {
  kTaken,
  kNoRoom,   // later
  kForeign,  // another process's, which will take it
  kUnasked,  // nobody has a queue pair, or no queue pair takes such
};
Offered offer_fpdu(Connection& c, Bytes fpdu);
int hand_over(Connection& c, Bytes fpdu);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_ONE_SIDED_H_
