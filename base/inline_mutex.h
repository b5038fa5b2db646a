// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A mutex that costs one locked instruction to take and one to give back, without a call, where
// nobody waits for it. Giving it back is sequentially consistent: who then looks for what others
// have left sees what those left that found it taken before.
#ifndef DDPSOCK_BASE_INLINE_MUTEX_H_
#define DDPSOCK_BASE_INLINE_MUTEX_H_

#include <linux/futex.h>

#include <atomic>
#include <cstdint>

#include "base/keep_errno.h"
#include "base/kernel_call.h"

namespace ddpsock::base {

// Of one process. As std::mutex: not taken again by who has it, free when it is destroyed.
class InlineMutex {
 public:
  InlineMutex() = default;
  InlineMutex(const InlineMutex&) = delete;
  InlineMutex& operator=(const InlineMutex&) = delete;

  [[nodiscard]] bool try_lock() {
    uint32_t seen = kFree;
    return word_.compare_exchange_strong(seen, kTaken);
  }
  void lock() {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  void unlock() {
    if (word_.exchange(kFree) == kAwaited) [[unlikely]]
      wake();
  }

 private:
  // kAwaited: somebody sleeps on it, or is about to.
  static constexpr uint32_t kFree = 0, kTaken = 1, kAwaited = 2;

  [[gnu::noinline]] void wait() {
    const KeepErrno keep;
    while (word_.exchange(kAwaited) != kFree)
      kernel_call(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, kAwaited, nullptr);
  }
  [[gnu::noinline]] void wake() {
    const KeepErrno keep;
    kernel_call(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1);
  }

  std::atomic<uint32_t> word_{kFree};
};

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_INLINE_MUTEX_H_
