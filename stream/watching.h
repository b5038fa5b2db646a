// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a stream tells its observer (engine/observer.h), if there is one. The calls below are for
// who has asked is_watched().
#ifndef DDPSOCK_STREAM_WATCHING_H_
#define DDPSOCK_STREAM_WATCHING_H_

#include <span>

#include "engine/observer.h"
#include "stream/connection.h"

namespace ddpsock::engine {

inline bool is_watched() {
  return observer != nullptr;
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
Named name_of(const Connection& c);
void tell_event(Connection& c, Observer::Event event, const char* text, int error = 0);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_WATCHING_H_
