// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_BASE_COUNTER_H_
#define DDPSOCK_BASE_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::base {

// Written by one thread at a time, which a lock or lease sees to; read by any at any time, also of
// another process. Costs what a plain number costs. One that several threads write is written by
// add_shared() alone.
class Counter {
 public:
  void add(uint64_t n) { value_.store(value() + n, std::memory_order_relaxed); }
  void add_shared(uint64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_COUNTER_H_
