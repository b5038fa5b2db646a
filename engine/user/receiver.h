// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_ENGINE_USER_RECEIVER_H_
#define DDPSOCK_ENGINE_USER_RECEIVER_H_

#include <sys/socket.h>

#include "engine/user/user_stream.h"

namespace ddpsock::engine {

// One recv call. REQUIRES: the receive lease is held and start-up is over in that direction.
class UserStream::Receiver {
 public:
  Receiver(UserStream& stream, int fd, std::span<const iovec> to, int flags);
  Io run();
  bool refresh();

 private:
  enum class Front : uint8_t { kVerified, kIncomplete, kFailed };

  // Bytes up to here are buffered on the stack; more, or a rest that outlives the call, takes a
  // block.
  static constexpr uint32_t kSmallBuffer = 4096 + kChunkHeader + kMaxTrailer + 1;

  void deliver();
  void put(const uint8_t* from, uint32_t n);
  Front look();
  bool verify(uint32_t size);
  bool is_data(const uint8_t* p) const;
  void count_segment(const uint8_t* p, uint32_t payload);
  void accept_chunk(uint32_t payload, uint32_t size);
  bool wants_more() const;
  bool has_enough() const;
  // Bytes taken from the kernel; 0 at its end of stream; -1 with errno or error_.
  ssize_t pull();
  ssize_t pull_directly(uint32_t payload, uint32_t rest);
  ssize_t keep_last_byte(int flags);

  // receiver_lane.cpp: where the stream lies in shared memory.
  bool take_residue();
  bool take_from_lane();
  void wake_writer();
  bool is_bell_in_front() const;
  ssize_t pull_beside_lane();
  ssize_t pull_no_further(int flags);
  ssize_t await_bell(int flags, bool may_wait);
  bool linger();
  bool spin_for_bytes();
  void note_habit();
  bool on_wire_end(ssize_t n);
  void ask_for_edge();
  void settle();
  void take_bells(uint32_t count);
  void take_bells_singly(uint32_t count);
  bool may_bell_lie() const;
  ssize_t read(uint32_t ask, int flags);
  ssize_t receive_message(std::span<const iovec> into, int flags);
  void enable_queue_hints();
  bool prepare_to_sleep();
  bool make_room(uint32_t ask);
  bool move_to_block();
  void on_end();
  Io finish();

  UserStream& s_;
  Rx& rx_;
  const int fd_;
  IoCursor to_;
  const int flags_;
  std::optional<shm::LaneReader> lane_;
  size_t got_ = 0;
  int error_ = 0;
  bool must_drop_ = false;   // the kept byte of an FPDU that is delivered to its end
  bool was_empty_ = false;   // the lane, when it was looked at
  bool has_spun_ = false;    // and found bytes
  bool is_drained_ = false;  // the last read took all that the kernel had
  uint8_t* data_ = nullptr;
  uint32_t capacity_ = 0, beg_ = 0, end_ = 0;
  uint8_t small_[kSmallBuffer];
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_RECEIVER_H_
