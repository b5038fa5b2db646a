// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sleeping on the lower half of a 64-bit word, between processes too. Async-signal-safe, no
// cancellation points; errno is the system call's.
#ifndef DDPSOCK_BASE_FUTEX_H_
#define DDPSOCK_BASE_FUTEX_H_

#include <linux/futex.h>
#include <time.h>

#include <atomic>
#include <bit>
#include <climits>
#include <cstdint>

#include "base/clock.h"
#include "base/kernel_call.h"

namespace ddpsock::base {

inline uint32_t* futex_of(std::atomic<uint64_t>& word) {
  constexpr size_t kLowerHalf = std::endian::native == std::endian::little ? 0 : 1;
  return reinterpret_cast<uint32_t*>(&word) + kLowerHalf;
}

// 0, or -1 and errno: EAGAIN (the lower half is another than that of `expected`), ETIMEDOUT, EINTR.
inline int futex_wait(std::atomic<uint64_t>& word, uint64_t expected, Duration at_most) {
  const timespec ts{at_most.ns / 1'000'000'000, at_most.ns % 1'000'000'000};
  return static_cast<int>(
      kernel_call(SYS_futex, futex_of(word), FUTEX_WAIT, static_cast<uint32_t>(expected), &ts));
}

inline void futex_wake_one(std::atomic<uint64_t>& word) {
  kernel_call(SYS_futex, futex_of(word), FUTEX_WAKE, 1);
}

inline void futex_wake_all(std::atomic<uint64_t>& word) {
  kernel_call(SYS_futex, futex_of(word), FUTEX_WAKE, INT_MAX);
}

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_FUTEX_H_
