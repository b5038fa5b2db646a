// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_SHM_JOINING_H_
#define DDPSOCK_SHM_JOINING_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::engine::shm {

// The first bytes of memory that the end which connected offers and the one that accepted may join:
// what the memory holds, and the one word that decides between the two. All of it may be the peer's
// writing.
class Joining {
 public:
  // By who made it, with everything else in it. Another layout has another number.
  void offer(uint64_t layout) { layout_.store(layout, std::memory_order_release); }
  bool is_offered(uint64_t layout) const {
    return layout_.load(std::memory_order_acquire) == layout;
  }
  // The accepting end's word that it has the memory; from then on the other end may use it. False:
  // it was given before, by whomever, or is not wanted any more.
  [[nodiscard]] bool join() { return decide(kJoined); }
  // The connecting end's word that nobody may join any more. False: somebody has.
  bool withdraw() { return decide(kWithdrawn); }
  bool is_joined() const { return word_.load(std::memory_order_acquire) == kJoined; }

 private:
  static constexpr uint32_t kJoined = 1, kWithdrawn = 2;  // 0 as long as it is open
  bool decide(uint32_t word) {
    uint32_t open = 0;
    return word_.compare_exchange_strong(open, word, std::memory_order_acq_rel);
  }

  std::atomic<uint64_t> layout_;
  std::atomic<uint32_t> word_;
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_JOINING_H_
