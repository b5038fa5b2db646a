// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether an epoll_wait() on a set that has more streams than are looked at looks at those: not
// while they have little of what comes, for then a look costs and the kernel is asked all the same.
// Zero memory: it does. Any thread; what several tell at once may be lost.
#ifndef DDPSOCK_SHIM_POLLERS_LOOK_TURN_H_
#define DDPSOCK_SHIM_POLLERS_LOOK_TURN_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ddpsock::shim {

class LookTurn {
 public:
  // Of a wait that is about to begin. Counts.
  bool is_due() {
    if (cost_.load(std::memory_order_relaxed) < kMostCost) return true;
    const uint32_t skipped = skipped_.load(std::memory_order_relaxed) + 1;
    skipped_.store(skipped % kSkipped, std::memory_order_relaxed);
    return skipped == kSkipped;
  }
  // A wait looked, and has found something by that, or only the kernel has.
  void note(bool has_found) {
    const uint32_t cost = cost_.load(std::memory_order_relaxed);
    const uint32_t next =
        has_found ? cost - std::min(cost, 1u) : std::min(cost + kCostOfVain, kMostCost);
    if (next != cost) cost_.store(next, std::memory_order_relaxed);
  }
  // A look has found what there was no room for. Its bell may have been settled, and its edge told
  // of: only a look finds it again.
  void note_left() { has_left_.store(true, std::memory_order_relaxed); }
  // Whether one has, since this was asked.
  bool take_left() {
    return has_left_.load(std::memory_order_relaxed) &&
           has_left_.exchange(false, std::memory_order_relaxed);
  }
  // Another set.
  void begin() {
    has_left_.store(false, std::memory_order_relaxed);
    cost_.store(0, std::memory_order_relaxed);
    skipped_.store(0, std::memory_order_relaxed);
  }

 private:
  // What a look saves that finds something, in times of which a vain one costs: the bells that lie
  // are settled behind that, and the kernel is slept on.
  static constexpr uint32_t kCostOfVain = 3;
  static constexpr uint32_t kMostCost = 96, kSkipped = 64;

  std::atomic<uint32_t> cost_;  // of vain looks, less what others have saved
  std::atomic<uint32_t> skipped_;
  std::atomic<bool> has_left_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_LOOK_TURN_H_
