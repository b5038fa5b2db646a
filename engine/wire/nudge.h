// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_ENGINE_WIRE_NUDGE_H_
#define DDPSOCK_ENGINE_WIRE_NUDGE_H_

#include <cstdint>

#include "base/clock.h"

namespace ddpsock::engine {

// When an initiator that has sent and heard nothing should send something more, so that a responder
// that overlooked the first FPDU looks again (doc/decisions/0005-nudge.md). Three times, each after
// four times as long; the answer, if there is one, ends it.
class Nudge {
 public:
  // Zero: never.
  void configure(Duration wait) {
    wait_ = wait;
    left_ = wait.ns > 0 ? kNudges : 0;
  }
  void sent(Time now) {
    if (left_ != 0 && due_ == kNever) due_ = now + wait_;
  }
  void heard() {
    left_ = 0;
    due_ = kNever;
  }
  Time due() const { return due_; }
  // Who does not look now whether the peer has spoken leaves it to the next.
  void put_off(Time now) {
    if (due_ <= now) due_ = now + kALittle;
  }
  // Whether it is time for one; counts it.
  bool take(Time now) {
    if (now < due_) return false;
    due_ = kNever;
    wait_ = {wait_.ns * 4};
    --left_;
    return true;
  }

 private:
  static constexpr uint32_t kNudges = 3;
  static constexpr Duration kALittle = Duration::from_ms(1);
  Duration wait_{};
  uint32_t left_ = 0;
  Time due_ = kNever;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_WIRE_NUDGE_H_
