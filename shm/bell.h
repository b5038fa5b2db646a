// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The doorbell protocol between the two sides of a lane. It keeps one promise: while the lane holds
// bytes and no call of the reader is running, either a bell is on its way to the reader's socket or
// unread in it. A bell is a message in the kernel; the words here say who owes one.
//
//   writer: publish the tail, then look at `armed`; whoever takes it from 1 to 0 rings
//   reader: on empty, arm, then look at the tail again; sleep only if it is still empty
//
// Each side writes its word before it reads the other's (both sequentially consistent), so at least
// one sees the other. The words lie in memory that the other side may scribble on: what they say
// can cost this connection its wakeups and nothing else.
//
// Templates over the atomic type, so that bell_test.cpp runs this very code through every
// interleaving, store buffers included.
#ifndef DDPSOCK_SHM_BELL_H_
#define DDPSOCK_SHM_BELL_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::engine::shm {

// Set in the tail, by either side: nothing may be published any more. One word holds both, so that
// what was published before is known exactly.
inline constexpr uint64_t kClosedBit = uint64_t{1} << 63;

enum class Publication : uint8_t {
  kQuiet,     // the reader is awake, or a bell is unread
  kMustRing,  // the caller must ring: the reader may sleep
  kClosed,    // the lane is closed; nothing was published
  kCorrupt,   // the word is not what this side last wrote; nothing was published
};

// Moves the tail from `from` to `to`.
template <typename Tail, typename Armed>
Publication publish(Tail& tail, Armed& armed, uint64_t from, uint64_t to) {
  uint64_t seen = from;
  if (!tail.compare_exchange_strong(seen, to, std::memory_order_seq_cst))
    return seen == (from | kClosedBit) ? Publication::kClosed : Publication::kCorrupt;
  if (armed.load(std::memory_order_seq_cst) == 0) return Publication::kQuiet;
  return armed.exchange(0, std::memory_order_acq_rel) != 0 ? Publication::kMustRing
                                                           : Publication::kQuiet;
}

// Asks for a bell. The value of the tail after that: if it shows bytes, no bell may come for them,
// and the reader must take the question back (disarm) or read until the lane is empty.
template <typename Tail, typename Armed>
uint64_t arm(Tail& tail, Armed& armed) {
  armed.store(1, std::memory_order_seq_cst);
  return tail.load(std::memory_order_seq_cst);
}

// True if the question was still open: no bell comes for it.
template <typename Armed>
bool disarm(Armed& armed) {
  return armed.exchange(0, std::memory_order_acq_rel) != 0;
}

// The last tail there will ever be.
template <typename Tail>
uint64_t close_lane(Tail& tail) {
  return tail.fetch_or(kClosedBit, std::memory_order_seq_cst) & ~kClosedBit;
}

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_BELL_H_
