// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/lease.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/process.h"

namespace ddpsock::base {
namespace {

// How often a waiter looks whether the holder still lives.
constexpr Duration kLivenessCheck = Duration::from_ms(20);

int futex_wait(std::atomic<uint32_t>* word, uint32_t expected, Duration at_most) {
  const timespec ts{at_most.ns / 1'000'000'000, at_most.ns % 1'000'000'000};
  return static_cast<int>(syscall(SYS_futex, word, FUTEX_WAIT, expected, &ts, nullptr, 0));
}

void futex_wake_one(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool is_thread_alive(uint32_t tid) {
  return kill(static_cast<pid_t>(tid), 0) == 0 || errno != ESRCH;
}

}  // namespace

Lease::Outcome Lease::try_acquire() {
  const uint32_t me = thread_id();
  uint32_t seen = 0;
  if (word_.compare_exchange_strong(seen, me, std::memory_order_acquire)) return Outcome::kAcquired;
  return (seen & ~kWaiters) == me ? Outcome::kHeldByMe : Outcome::kBusy;
}

Lease::Outcome Lease::take_from_dead(uint32_t seen) {
  // Whoever wins keeps the waiters bit, so that the next release wakes the other waiters.
  if (word_.compare_exchange_strong(seen, thread_id() | kWaiters, std::memory_order_acquire))
    return Outcome::kInherited;
  return Outcome::kBusy;
}

Lease::Outcome Lease::acquire(Time deadline) {
  const int saved_errno = errno;
  Outcome out = try_acquire();
  if (out != Outcome::kBusy) return out;
  const uint32_t me = thread_id();
  for (;;) {
    uint32_t seen = word_.load(std::memory_order_relaxed);
    // Once a thread has slept it must assume others sleep too, hence the waiters bit on its own
    // hold.
    if (seen == 0) {
      if (word_.compare_exchange_weak(seen, me | kWaiters, std::memory_order_acquire)) break;
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
    const int r = futex_wait(&word_, seen | kWaiters, std::min(left, kLivenessCheck));
    if (r != 0 && errno == EINTR) return Outcome::kInterrupted;
    if (r != 0 && errno == ETIMEDOUT && !is_thread_alive(seen & ~kWaiters)) {
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
  if ((word_.exchange(0, std::memory_order_release) & kWaiters) != 0) futex_wake_one(&word_);
}

}  // namespace ddpsock::base
