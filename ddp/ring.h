// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A first-in first-out queue of fixed capacity, allocated once when it is made.
#ifndef DDPSOCK_DDP_RING_H_
#define DDPSOCK_DDP_RING_H_

#include <cstdint>
#include <memory>
#include <new>

#include "base/invariant.h"

namespace ddpsock::ddp {

template <typename T>
class Ring {
 public:
  // The one allocation. When it fails, capacity() is 0 although more was asked for: owners check
  // has_memory_for() before first use.
  explicit Ring(uint32_t capacity)
      : slots_(new(std::nothrow) T[capacity]), capacity_(slots_ ? capacity : 0) {}

  bool has_memory_for(uint32_t wanted) const { return capacity_ >= wanted; }
  uint32_t capacity() const { return capacity_; }
  uint32_t size() const { return size_; }
  bool is_empty() const { return size_ == 0; }
  bool is_full() const { return size_ == capacity_; }

  // REQUIRES: !is_full(). The slot keeps whatever its last user left; the caller assigns it.
  T& push() {
    DDPSOCK_INVARIANT(!is_full());
    return slots_[index(size_++)];
  }
  // REQUIRES: !is_empty().
  void pop() {
    DDPSOCK_INVARIANT(!is_empty());
    // A ring that runs empty begins anew in memory that is in the cache.
    head_ = --size_ == 0 ? 0 : index(1);
  }
  // REQUIRES: !is_empty(). Takes back the newest element.
  void pop_newest() {
    DDPSOCK_INVARIANT(!is_empty());
    --size_;
  }
  // REQUIRES: i < size(). 0 is the oldest. References hold until the element is popped.
  T& operator[](uint32_t i) {
    DDPSOCK_INVARIANT(i < size_);
    return slots_[index(i)];
  }
  const T& operator[](uint32_t i) const {
    DDPSOCK_INVARIANT(i < size_);
    return slots_[index(i)];
  }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }

 private:
  uint32_t index(uint32_t i) const {
    const uint32_t at = head_ + i;
    return at < capacity_ ? at : at - capacity_;
  }

  std::unique_ptr<T[]> slots_;
  uint32_t capacity_;
  uint32_t head_ = 0;
  uint32_t size_ = 0;
};

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_RING_H_
