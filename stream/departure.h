// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_DEPARTURE_H_
#define DDPSOCK_STREAM_DEPARTURE_H_

#include <optional>

#include "stream/connection.h"
#include "stream/lent_block.h"
#include "stream/raw_message.h"

namespace ddpsock::engine {

// One step of the side that wants its connection plain (raw.cpp is the other's). Looks at what the
// kernel has and consumes none of it before the peer's marker is there: a step that comes to
// nothing has changed nothing for whoever reads. REQUIRES: both leases.
class Departure {
 public:
  Departure(Connection& c, int fd)
      : c_(c), r_(c.r), rx_(c.rx), tx_(c.tx), inbox_(c.inbox), fd_(fd) {}
  PlainReturn step();

 private:
  using State = PlainReturn::State;
  static PlainReturn refuse(const char* why) { return {State::kRefused, why}; }
  static PlainReturn wait(const char* why) { return {State::kPending, why}; }
  PlainReturn fail_or_wait(int error);

  // What lies unread, seen by one look.
  enum class Front : uint8_t { kMore, kMark, kEnd, kUnfit };
  Front look();
  Front walk(const uint8_t* data, size_t size);
  void add_undelivered(Bytes bytes);
  PlainReturn ask();
  void answer();
  PlainReturn finish();
  PlainReturn end_marked();

  Connection& c_;
  Record& r_;
  Rx& rx_;
  Tx& tx_;
  Inbox& inbox_;
  const int fd_;
  LentBlock sight_, undelivered_block_;
  uint8_t* undelivered_ = nullptr;
  size_t undelivered_size_ = 0;  // also of what did not fit
  uint32_t next_msn_ = 0;
  size_t buffered_ = 0, taken_ = 0;  // bytes of FPDUs: read before; up to the first not dealt with
  uint32_t repeated_ = 0;            // as the marker says
  std::optional<RawMessage> peer_asks_;
};

// Stream::return_to_plain().
PlainReturn return_to_plain(Connection& c, int fd);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_DEPARTURE_H_
