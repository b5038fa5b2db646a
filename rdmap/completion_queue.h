// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A completion queue that cannot overflow: every posted work request reserves its slot, and a post
// that finds none free is refused. Several queue pairs may share one. Locking is the owner's, as
// for StagTable; but places are reserved and given back by any thread.
#ifndef DDPSOCK_RDMAP_COMPLETION_QUEUE_H_
#define DDPSOCK_RDMAP_COMPLETION_QUEUE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "ddp/ring.h"
#include "rdmap/work.h"

namespace ddpsock::rdmap {

class CompletionQueue {
 public:
  enum class Arm : uint8_t { kOff, kSolicited, kAny };

  explicit CompletionQueue(uint32_t depth) : entries_(depth), depth_(depth) {}
  bool has_memory() const { return entries_.has_memory_for(depth_); }

  // Moves the oldest completions to `out`; how many. Their slots are free again.
  uint32_t poll(std::span<Completion> out);
  uint32_t size() const { return entries_.size(); }
  // Whether there are any, as seen without the owner's lock: of late.
  bool has_any() const { return has_any_.load(std::memory_order_relaxed); }

  // Wants to be told of the next completion (kSolicited: only of a solicited or failed one).
  // One-shot: take_event() is true once after it happened.
  void arm(Arm what) { arm_ = what; }
  bool take_event() {
    const bool had = has_event_;
    has_event_ = false;
    return had;
  }

  // For queue pairs. reserve() takes so many slots, or as many as are free; each is followed by
  // exactly one push() or release().
  [[nodiscard]] uint32_t reserve(uint32_t wanted = 1) {
    uint32_t taken = taken_.load(std::memory_order_relaxed);
    uint32_t got = 0;
    do {
      got = std::min(wanted, entries_.capacity() - taken);
      if (got == 0) return 0;
    } while (!taken_.compare_exchange_weak(taken, taken + got, std::memory_order_acq_rel,
                                           std::memory_order_relaxed));
    return got;
  }
  void release(uint32_t count = 1) { taken_.fetch_sub(count, std::memory_order_release); }
  void push(const Completion& c);

 private:
  ddp::Ring<Completion> entries_;
  uint32_t depth_;
  std::atomic<uint32_t> taken_{0};  // slots reserved or holding a completion
  Arm arm_ = Arm::kOff;
  bool has_event_ = false;
  std::atomic<bool> has_any_{false};
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_COMPLETION_QUEUE_H_
