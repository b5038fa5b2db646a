// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A lock for state in memory that several processes share. Unlike a mutex it may be held while the
// holder sleeps in the kernel, so callers who must not block ask try_acquire() and the others bound
// their wait; and a holder that died is noticed (base/process.h), because the state it left may be
// half-written.
#ifndef DDPSOCK_BASE_LEASE_H_
#define DDPSOCK_BASE_LEASE_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace ddpsock::base {

class Lease {
 public:
  enum class Outcome : uint8_t {
    kAcquired,
    kInherited,    // acquired, but the last holder died holding it: treat the state as lost
    kBusy,         // held by another thread (try_acquire, or the deadline passed)
    kHeldByMe,     // a signal handler interrupted this thread's own hold: never wait for it
    kInterrupted,  // a signal arrived while waiting (EINTR)
  };

  // Zeroed memory is a free lease; the object lives in MAP_SHARED memory and is never destroyed
  // there.
  Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Never blocks; one compare-exchange when free, sequentially consistent. Async-signal-safe.
  Outcome try_acquire();

  // Waits until `deadline` (kNever: until acquired). A cancellation point only in that it returns
  // kInterrupted on any signal.
  Outcome acquire(Time deadline);

  // As try_acquire(), but where it is busy asks at once whether the holder lives.
  Outcome try_take_over();

  // REQUIRES: held by the calling thread. One exchange; wakes one waiter if there are any.
  void release();

  // REQUIRES: held by the calling thread, which will never release it. As if it had died.
  void abandon();

  bool is_mine() const;
  // A thread_name(), or none that is.
  uint64_t holder() const { return word_.load(std::memory_order_relaxed) & ~kWaiters; }
  bool is_held() const { return word_.load(std::memory_order_relaxed) != 0; }

 private:
  static bool is_gone(uint64_t holder);
  Outcome take_from_dead(uint64_t seen);

  // 0: free. Otherwise the holder's thread_name(); kWaiters, in the half that futexes look at, set
  // when somebody sleeps on the word.
  static constexpr uint64_t kWaiters = 0x8000'0000;
  static constexpr uint64_t kNobody = ~uint64_t{0} & ~kWaiters;
  std::atomic<uint64_t> word_{0};
};
static_assert(sizeof(Lease) == 8);

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_LEASE_H_
