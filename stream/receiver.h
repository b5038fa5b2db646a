// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_RECEIVER_H_
#define DDPSOCK_STREAM_RECEIVER_H_

#include "stream/patience.h"
#include "stream/receive_call.h"

namespace ddpsock::engine {

// One recv call. REQUIRES: the receive lease is held and start-up is over in that direction.
class ChunkReceiver {
 public:
  // `got` bytes of the call have been delivered before. Moves `to`, which stays the caller's.
  ChunkReceiver(Connection& c, int fd, IoCursor& to, int flags, size_t got = 0);
  // What is in the inbox was all that the kernel had just now.
  void note_all_is_here() { call_.is_drained = true; }
  Io run();
  // All FPDUs have been taken that come before what lies elsewhere.
  bool is_at_border() const { return is_at_border_; }

 private:
  enum class Front : uint8_t { kVerified, kIncomplete, kFailed };

  void deliver();
  void put(const uint8_t* from, uint32_t n);
  Front look();
  bool may_sleep_again();
  bool outlive_flood();
  bool has_enough() const;
  void on_end();
  void settle_count();
  Io finish();

  ReceiveCall call_;
  uint32_t empty_ = 0;        // FPDUs taken one by one that nobody is told of
  bool has_dropped_ = false;  // and all that there were at once
  bool is_at_border_ = false;
  Patience patience_{call_.fd, (call_.flags & MSG_WAITALL) != 0 || call_.rx.low_water > 1};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_RECEIVER_H_
