// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a stream comes to lie in memory shared with its peer, and what of it this process has mapped.
#ifndef DDPSOCK_STREAM_MEMORY_START_H_
#define DDPSOCK_STREAM_MEMORY_START_H_

#include "stream/connection.h"
#include "stream/hello.h"

namespace ddpsock::engine {

// REQUIRES: the send lease.
void offer_memory(Connection& c, stream::Hello& hello);
// A connection of which nobody thought that it would be worth it goes on. REQUIRES: the send lease,
// no tail, that FPDUs are sent and one follows. 0, or the errno value for the call.
int offer_memory_later(Connection& c, int fd);
// The connection is over: was it too short for shared memory? Have the last ones been?
void note_life(const Connection& c);
bool are_lives_short();
Io send_before_memory(Connection& c, int fd, std::span<const iovec> from, int flags);
// REQUIRES: the receive lease.
void note_invitation(Connection& c, const stream::MemoryOffer& offer);
int try_to_join(Connection& c, int fd);
void notice_joining_while_receiving(Connection& c, int fd);
void withdraw_offer(Connection& c);
// As the peer sees it: a side that only receives may never have had to notice.
MemoryState memory_state(const Connection& c);

// Have all FPDUs been read that come before what is in memory? REQUIRES: the receive lease.
bool is_at_memory(Connection& c);
// Could what follows the FPDU in front be anything else? Then nothing beyond it must be read.
bool is_wire_near_memory(const Connection& c);
inline bool is_near_memory(const Connection& c) {
  const bool may_be = c.segment.load(std::memory_order_relaxed) != nullptr || c.inbox.has_beyond();
  return may_be && is_wire_near_memory(c);
}
// This end will, with what it sends first or later.
inline bool may_offer_memory(const Connection& c) {
  return c.r.wants_memory && c.r.role == Role::kInitiator &&
         c.r.memory.state.load(std::memory_order_relaxed) == MemoryState::kUnasked;
}
// What has been read in the belief that it was an FPDU is octets. REQUIRES: is_at_memory().
void begin_receiving_in_memory(Connection& c);

// Gives up what this process has mapped, and the descriptor of an offer.
void drop_memory(Connection& c, int fd, bool is_last);
void drop_descriptor(Connection& c);
// Stream::set_kept_option() and get_kept_option().
bool set_kept_option(Connection& c, int name, int value);
bool get_kept_option(Connection& c, int name, int& value);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_MEMORY_START_H_
