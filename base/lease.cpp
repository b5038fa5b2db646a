// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/lease.h"

#include <errno.h>

#include <algorithm>

#include "base/futex.h"
#include "base/process.h"

namespace ddpsock::base {
namespace {

// How often a waiter looks whether the holder still lives.
constexpr Duration kLivenessCheck = Duration::from_ms(20);

}  // namespace

bool Lease::is_gone(uint64_t holder) {
  return holder == kNobody || is_thread_dead(holder);
}

bool Lease::is_mine() const {
  return (word_.load(std::memory_order_relaxed) & ~kWaiters) == thread_name();
}

void Lease::abandon() {
  if ((word_.exchange(kNobody, std::memory_order_release) & kWaiters) != 0) futex_wake_one(word_);
}

Lease::Outcome Lease::try_acquire() {
  const uint64_t me = thread_name();
  uint64_t seen = 0;
  if (word_.compare_exchange_strong(seen, me)) return Outcome::kAcquired;
  return (seen & ~kWaiters) == me ? Outcome::kHeldByMe : Outcome::kBusy;
}

Lease::Outcome Lease::take_from_dead(uint64_t seen) {
  // Whoever wins keeps the waiters bit, so that the next release wakes the other waiters.
  if (word_.compare_exchange_strong(seen, thread_name() | kWaiters, std::memory_order_acquire))
    return Outcome::kInherited;
  return Outcome::kBusy;
}

Lease::Outcome Lease::try_take_over() {
  const Outcome out = try_acquire();
  if (out != Outcome::kBusy) return out;
  const uint64_t seen = word_.load(std::memory_order_relaxed);
  return seen != 0 && is_gone(seen & ~kWaiters) ? take_from_dead(seen) : Outcome::kBusy;
}

Lease::Outcome Lease::acquire(Time deadline) {
  const int saved_errno = errno;
  Outcome out = try_acquire();
  if (out != Outcome::kBusy) return out;
  const uint64_t me = thread_name();
  for (;;) {
    uint64_t seen = word_.load(std::memory_order_relaxed);
    // Once a thread has slept it must assume others sleep too, hence the waiters bit on its own
    // hold.
    if (seen == 0) {
      if (word_.compare_exchange_weak(seen, me | kWaiters)) break;
      continue;
    }
    if ((seen & kWaiters) == 0 &&
        !word_.compare_exchange_weak(seen, seen | kWaiters, std::memory_order_relaxed))
      continue;
    const Duration left = deadline == kNever ? kLivenessCheck : deadline - now();
    if (left.ns <= 0) {
      errno = saved_errno;
      return Outcome::kBusy;
    }
    const int r = futex_wait(word_, seen | kWaiters, std::min(left, kLivenessCheck));
    if (r != 0 && errno == EINTR) return Outcome::kInterrupted;
    if (r != 0 && errno == ETIMEDOUT && is_gone(seen & ~kWaiters)) {
      out = take_from_dead(seen | kWaiters);
      if (out == Outcome::kInherited) {
        errno = saved_errno;
        return out;
      }
    }
  }
  errno = saved_errno;
  return Outcome::kAcquired;
}

void Lease::release() {
  if ((word_.exchange(0, std::memory_order_release) & kWaiters) != 0) futex_wake_one(word_);
}

}  // namespace ddpsock::base
