// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_RECEIVER_H_
#define DDPSOCK_STREAM_RECEIVER_H_

#include <sys/socket.h>

#include "stream/connection.h"
#include "stream/descriptor.h"
#include "stream/io_cursor.h"
#include "stream/patience.h"
#include "stream/receive_buffer.h"

namespace ddpsock::engine {

// One recv call. REQUIRES: the receive lease is held and start-up is over in that direction.
class ChunkReceiver {
 public:
  // `got` bytes of the call have been delivered before. Moves `to`, which stays the caller's.
  ChunkReceiver(Connection& c, int fd, IoCursor& to, int flags, size_t got = 0);
  // What is in the inbox was all that the kernel had just now.
  void note_all_is_here() { is_drained_ = true; }
  Io run();
  // All FPDUs have been taken that come before what lies elsewhere.
  bool is_at_border() const { return is_at_border_; }

 private:
  enum class Front : uint8_t { kVerified, kIncomplete, kFailed };

  void deliver();
  void put(const uint8_t* from, uint32_t n);
  Front look();
  // The FPDU at the front of the buffer.
  Fpdu front() const { return c_.reader().look(buffer_.bytes()); }
  bool is_good(const Fpdu& fpdu);
  void count(const Fpdu& fpdu);
  void accept(const Fpdu& fpdu);
  void look_for_border();
  bool may_sleep_again();
  bool outlive_flood();
  bool wants_more() const;
  bool has_enough() const;
  // Bytes taken from the kernel; 0 at its end of stream; -1 with errno or error_.
  ssize_t pull();
  ssize_t pull_directly(const Fpdu& fpdu, uint32_t rest);
  ssize_t keep_last_byte(int flags);

  ssize_t pull_no_further();
  ssize_t read(uint32_t ask, int flags);
  ssize_t receive_message(std::span<const iovec> into, int flags);
  void enable_queue_hints();
  bool sleeps_without_taking() const;
  // Both take nothing.
  ssize_t await_byte(int flags);
  ssize_t peek(MutBytes to, int flags);
  uint32_t size_of_known(Bytes ahead) const;
  bool prepare_to_sleep();
  void wake_up(bool has_taken = false);
  bool make_room(uint32_t ask);
  bool fail_for_memory();
  void on_end();
  void settle_count();
  Io finish();

  Connection& c_;
  Rx& rx_;
  Inbox& inbox_;
  Descriptor fd_;
  IoCursor& to_;
  const int flags_;
  bool is_near_border_;  // nothing beyond the FPDU in front may be read
  size_t got_;
  int error_ = 0;
  uint32_t empty_ = 0;        // FPDUs taken one by one that nobody is told of
  bool has_dropped_ = false;  // and all that there were at once
  Patience patience_{fd_, (flags_ & MSG_WAITALL) != 0 || rx_.low_water > 1};
  bool must_drop_ = false;  // the kept byte of an FPDU that is delivered to its end
  bool is_at_border_ = false;
  bool is_drained_ = false;  // the last read took all that the kernel had
  ReceiveBuffer buffer_{inbox_, c_.arena.blocks};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_RECEIVER_H_
