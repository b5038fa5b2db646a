// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/completion_queue.h"

#include <cassert>

namespace ddpsock::rdmap {

uint32_t CompletionQueue::poll(std::span<Completion> out) {
  uint32_t n = 0;
  while (n < out.size() && !entries_.is_empty()) {
    out[n++] = entries_.front();
    entries_.pop();
  }
  return n;
}

void CompletionQueue::push(const Completion& c) {
  assert(reserved_ != 0);
  --reserved_;
  entries_.push() = c;
  const bool is_urgent = c.is_solicited || c.status != WorkStatus::kOk;
  if (arm_ == Arm::kAny || (arm_ == Arm::kSolicited && is_urgent)) {
    arm_ = Arm::kOff;
    has_event_ = true;
  }
}

}  // namespace ddpsock::rdmap
