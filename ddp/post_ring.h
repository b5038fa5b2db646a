// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A first-in first-out queue of fixed capacity, allocated once when it is made. Any thread puts
// elements in, without a lock and without waiting for another; its owner, one thread at a time,
// takes notice of them with take_in() and sees only those.
//
// A thread stopped between claim() and publish() holds back what others put in after it, but not
// the others.
#ifndef DDPSOCK_DDP_POST_RING_H_
#define DDPSOCK_DDP_POST_RING_H_

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>

#include "base/invariant.h"

namespace ddpsock::ddp {

// Places at the end of the queue, one after the other, to be filled and published by whoever got
// them, soon. They keep whatever their last users left.
struct PostPlaces {
  uint64_t first = 0;
  uint32_t count = 0;  // fewer than asked for when no more are free
};

template <typename T>
class PostRing {
 public:
  // The one allocation. When it fails, capacity() is 0 although more was asked for: owners check
  // has_memory_for() before first use.
  explicit PostRing(uint32_t capacity)
      : slots_(new(std::nothrow) Slot[std::bit_ceil(capacity)]),
        mask_(std::bit_ceil(capacity) - 1),
        capacity_(slots_ ? capacity : 0) {}

  bool has_memory_for(uint32_t wanted) const { return capacity_ >= wanted; }
  uint32_t capacity() const { return capacity_; }

  // Of any thread.

  // As of now: others may put in and take out.
  bool is_full() const { return claimed() == capacity_; }
  // Nothing claimed, be it published or not.
  bool is_idle() const { return claimed() == 0; }

  // How many places are free.
  uint32_t room() const { return capacity_ - claimed(); }
  [[nodiscard]] PostPlaces claim(uint32_t wanted) {
    uint64_t tail = tail_.load(std::memory_order_relaxed);
    for (;;) {
      // A tail of long ago may lie behind the head.
      const auto taken = static_cast<int64_t>(tail - head_.load(std::memory_order_acquire));
      const int64_t room = std::min<int64_t>(wanted, int64_t{capacity_} - taken);
      if (room <= 0) return {};
      if (tail_.compare_exchange_weak(tail, tail + static_cast<uint64_t>(room),
                                      std::memory_order_seq_cst, std::memory_order_relaxed))
        return {tail, static_cast<uint32_t>(room)};
    }
  }
  // REQUIRES: i < places.count.
  T& at(const PostPlaces& places, uint32_t i) { return slots_[(places.first + i) & mask_].element; }
  void publish(const PostPlaces& places, uint32_t i) {
    const uint64_t ordinal = places.first + i;
    slots_[ordinal & mask_].published.store(ordinal + 1, std::memory_order_release);
  }

  // Of the owner.

  // Takes notice of what has been published; how many elements are new. Of one that has no memory,
  // none.
  uint32_t take_in() {
    if (slots_ == nullptr) [[unlikely]]
      return 0;
    const uint64_t before = end_;
    while (slots_[end_ & mask_].published.load(std::memory_order_acquire) == end_ + 1) ++end_;
    return static_cast<uint32_t>(end_ - before);
  }

  // Whether somebody has a place and has not published it yet, or that has not been taken in.
  bool has_more() const { return tail_.load(std::memory_order_seq_cst) != end_; }

  uint32_t size() const { return static_cast<uint32_t>(end_ - head()); }
  bool is_empty() const { return size() == 0; }
  // How many elements have ever been popped: the ordinal of the oldest.
  uint64_t head() const { return head_.load(std::memory_order_relaxed); }

  // REQUIRES: !is_empty().
  void pop() {
    DDPSOCK_INVARIANT(!is_empty());
    head_.store(head() + 1, std::memory_order_release);
  }
  // REQUIRES: i < size(). 0 is the oldest. References hold until the element is popped.
  T& operator[](uint32_t i) {
    DDPSOCK_INVARIANT(i < size());
    return slots_[(head() + i) & mask_].element;
  }
  const T& operator[](uint32_t i) const {
    DDPSOCK_INVARIANT(i < size());
    return slots_[(head() + i) & mask_].element;
  }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }

 private:
  struct Slot {
    std::atomic<uint64_t> published{0};  // ordinal + 1 of the element in it
    T element;
  };

  uint32_t claimed() const {
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    const uint64_t head = head_.load(std::memory_order_acquire);
    // Others may have gone on meanwhile.
    return tail > head ? static_cast<uint32_t>(tail - head) : 0;
  }

  std::unique_ptr<Slot[]> slots_;
  uint64_t mask_;
  uint32_t capacity_;
  std::atomic<uint64_t> tail_{0};  // ordinal of the next to be claimed
  std::atomic<uint64_t> head_{0};  // written by the owner
  uint64_t end_ = 0;               // the owner's: up to here it has taken notice
};

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_POST_RING_H_
