// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A completion queue that cannot overflow: every posted work request reserves its slot, and a post
// that finds none free is refused. Several queue pairs may share one. Locking is the owner's, as
// for StagTable.
#ifndef DDPSOCK_RDMAP_COMPLETION_QUEUE_H_
#define DDPSOCK_RDMAP_COMPLETION_QUEUE_H_

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

  // Wants to be told of the next completion (kSolicited: only of a solicited or failed one).
  // One-shot: take_event() is true once after it happened.
  void arm(Arm what) { arm_ = what; }
  bool take_event() {
    const bool had = has_event_;
    has_event_ = false;
    return had;
  }

  // For queue pairs. reserve() is false when all slots are taken; each success is followed by
  // exactly one push() or release().
  [[nodiscard]] bool reserve() {
    if (reserved_ + entries_.size() == entries_.capacity()) return false;
    ++reserved_;
    return true;
  }
  void release() { --reserved_; }
  void push(const Completion& c);

 private:
  ddp::Ring<Completion> entries_;
  uint32_t depth_;
  uint32_t reserved_ = 0;
  Arm arm_ = Arm::kOff;
  bool has_event_ = false;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_COMPLETION_QUEUE_H_
