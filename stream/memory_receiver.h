// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_MEMORY_RECEIVER_H_
#define DDPSOCK_STREAM_MEMORY_RECEIVER_H_

#include <sys/socket.h>

#include "stream/descriptor.h"
#include "stream/io_cursor.h"
#include "stream/lanes.h"
#include "stream/patience.h"

namespace ddpsock::engine {

// All: REQUIRES the receive lease. A thread that will be back in a call, and not in a poller,
// leaves the bell where it is: the next bytes then need none. `octets`: unread.
bool may_bell_lie(const Connection& c, uint64_t octets, bool has_spun = false);
// LaneReader::take() has said so.
void wake_writer(shm::LaneReader& lane);
// All that was there has been taken, and no bell may lie.
void settle_behind(Connection& c, int fd, shm::LaneReader& lane);

constexpr uint64_t kMostBells = 64;  // more is filler, or a reader's that never comes to an end
constexpr const char* kNonsense = "the peer wrote nonsense into the shared memory";
constexpr const char* kNotCounted = "the peer sent what it had not counted";

// One recv call, as far as what comes lies in memory. REQUIRES: the receive lease is held.
class MemoryReceiver {
 public:
  // `got` bytes of the call have been delivered before.
  MemoryReceiver(Connection& c, int fd, IoCursor& to, int flags, size_t& got);
  Io run();
  bool refresh();
  // The peer has left the memory and all in it was read: the rest comes by the wire.
  bool has_left() const { return has_left_; }

 private:
  void take();
  void eat_filler();
  void lock_window();
  bool wants_more() const;
  bool has_enough() const;
  bool goes_on_by_wire();
  ssize_t eat(uint64_t most, int flags);
  void eat_many(uint64_t octets);
  bool await();
  bool may_look_again();
  int await_again(int flags);
  bool sleep(int flags);
  void note_sleep_or_refusal(int error);
  bool leave();
  bool linger();
  bool spin();
  bool on_end(ssize_t n);
  void note_habit();
  void ask_for_edge();
  void settle();
  Io finish();

  Connection& c_;
  Rx& rx_;
  InLane lane_;
  Descriptor fd_;
  IoCursor& to_;
  const int flags_;
  size_t& got_;
  int error_ = 0;
  bool was_empty_ = false;  // the lane, when it was looked at
  bool has_spun_ = false;   // and found bytes
  bool has_left_ = false;
  bool is_over_ = false;  // the kernel had the last word
  uint64_t vain_ = 0;     // octets were eaten so often, and no bytes had come
  Patience patience_{fd_, (flags_ & MSG_WAITALL) != 0 || rx_.low_water > 1};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_MEMORY_RECEIVER_H_
