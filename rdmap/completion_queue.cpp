// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/completion_queue.h"

#include "base/invariant.h"

namespace ddpsock::rdmap {

uint32_t CompletionQueue::poll(std::span<Completion> out) {
  uint32_t n = 0;
  while (n < out.size() && !entries_.is_empty()) {
    out[n++] = entries_.front();
    entries_.pop();
  }
  taken_.fetch_sub(n, std::memory_order_release);
  has_any_.store(!entries_.is_empty(), std::memory_order_relaxed);
  return n;
}

void CompletionQueue::push(const Completion& c) {
  DDPSOCK_INVARIANT(entries_.size() < taken_.load(std::memory_order_relaxed));
  entries_.push() = c;
  has_any_.store(true, std::memory_order_relaxed);
  const bool is_urgent = c.is_solicited || c.status != WorkStatus::kOk;
  if (arm_ == Arm::kAny || (arm_ == Arm::kSolicited && is_urgent)) {
    arm_ = Arm::kOff;
    has_event_ = true;
  }
}

}  // namespace ddpsock::rdmap
