// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MSG_PEEK, FIONREAD and pollers: looks that take nothing (scan.h).
#ifndef DDPSOCK_STREAM_LOOKS_H_
#define DDPSOCK_STREAM_LOOKS_H_

#include <optional>

#include "stream/connection.h"
#include "stream/io_cursor.h"
#include "stream/patience.h"

namespace ddpsock::engine {

// Of a call with MSG_PEEK, from one look to the next. What has found a part, and waits for more,
// waits with empty hands: others may take meanwhile what lies there, as the kernel lets them.
struct PeekCall {
  enum class Next : uint8_t { kDone, kAwaitMore, kRest };
  // Its timeout counts from here, however often it waits.
  PeekCall(const Connection& c, int fd, int flags)
      : patience(fd, (flags & MSG_WAITALL) != 0 || c.rx.low_water > 1) {}
  Io found(size_t payload, Next then = Next::kDone) {
    next = then;
    return Io::ok(static_cast<ssize_t>(payload));
  }
  // False: with what was seen the call is over. REQUIRES: the caller holds nothing; who holds the
  // direction again asks what the number means by now.
  bool wait(Connection& c, int fd);

  // Each look copies all it sees, of a peer too that sends no more: a look which took long rests
  // longer than it took, and a short one not so long that it comes late.
  static constexpr int kRestsALook = 16, kShortestRestMs = 1, kLongestRestMs = 16;
  static int rest_ms(Duration look);

  Patience patience;
  Next next = Next::kDone;
  std::optional<Time> woke;
  bool has_waited = false;
  size_t queued = 0;  // kAwaitMore: than so many bytes in the kernel
};

// recv() with MSG_PEEK, where FPDUs come next. REQUIRES: the receive lease.
Io peek(Connection& c, int fd, std::span<const iovec> to, int flags, PeekCall& looking);
// How many bytes a look that may wait is for, with room for so many.
size_t wanted_by_look(const Connection& c, size_t room, int flags);
// Stream::readable() and is_recv_ready().
Io readable(Connection& c, int fd, bool may_lag);
bool is_recv_ready(Connection& c, int fd);

// Other bytes lie in front of FPDU `msn`. All below: REQUIRES the receive lease.
bool is_border(Connection& c, uint32_t msn);
// The peer has left the memory, and not all that lies there is read.
bool is_left_behind(Connection& c);
// Of those that a poller may need one stays; the others are only in the way.
uint64_t octets_before_wire(Connection& c);
// Of what lies behind the last FPDU of a kind: how many bytes were shown or, without `to`, lie
// there.
// Do FPDUs come again behind what lies there? That is all, then.
bool is_wire_behind_border(Connection& c);
size_t look_behind_border(Connection& c, IoCursor* to, bool is_truncating);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_LOOKS_H_
