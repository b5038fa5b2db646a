// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a stream tells its observer (engine/observer.h), if there is one. The calls below are for
// who has asked is_watched().
#ifndef DDPSOCK_STREAM_WATCHING_H_
#define DDPSOCK_STREAM_WATCHING_H_

#include <algorithm>
#include <span>

#include "engine/observer.h"
#include "stream/connection.h"

namespace ddpsock::engine {

inline bool is_watched() {
  return is_observed.load(std::memory_order_relaxed);
}

// FPDUs that the kernel took, whole ones, one behind the other.
void tell_sent(Connection& c, Bytes fpdus);
// One, in pieces.
void tell_sent_pieces(Connection& c, std::span<const Bytes> fpdu);
// One that was received, whole; good or not.
void tell_received(Connection& c, Bytes fpdu);
// Bytes of stream in memory, as chunks that would carry them. REQUIRES: the lease of that
// direction.
void tell_in_memory(Connection& c, Observer::Way way, Bytes payload);
// The reader takes `size` bytes from the front of what `look()` sees there: that is told of as a
// whole, once, however small the pieces are that it is taken in.
template <typename Look>
void tell_taken(Connection& c, size_t size, Look look) {
  if (c.told_ahead < size) {
    const Bytes all = look();
    tell_in_memory(c, Observer::Way::kReceived, all.subspan(std::min(c.told_ahead, all.size())));
    c.told_ahead = all.size();
  }
  c.told_ahead -= std::min(size, c.told_ahead);
}
Named name_of(const Connection& c);
void tell_event(Connection& c, Observer::Event event, const char* text, int error = 0);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_WATCHING_H_
