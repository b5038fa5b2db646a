// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/kernel_turn.h"

#include <algorithm>

#include "base/clock.h"

namespace ddpsock::shim {
namespace {

// Less often if that takes long, so that it never takes more than a part of the time.
constexpr Duration kEvery = Duration::from_us(100), kAtLeastEvery = Duration::from_ms(2);
constexpr int64_t kPart = 16;

}  // namespace

bool KernelTurn::is_due() {
  const Time now = base::now();
  if (now < Time{ask_again_at_.load(std::memory_order_relaxed)}) return false;
  asked_at_.store(now.ns, std::memory_order_relaxed);
  return true;
}

void KernelTurn::note_asked() {
  const Time now = base::now();
  const Duration took = now - Time{asked_at_.load(std::memory_order_relaxed)};
  const Duration pause = std::clamp(Duration{took.ns * kPart}, kEvery, kAtLeastEvery);
  ask_again_at_.store((now + pause).ns, std::memory_order_relaxed);
}

}  // namespace ddpsock::shim
