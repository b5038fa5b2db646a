// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/deferral.h"

#include <algorithm>

namespace ddpsock::shim {

constinit std::atomic<unsigned> Deferral::sets_{0};

namespace {

// To make the kernel quiet about a stream, and to take that back, costs as much as some questions.
constexpr uint32_t kQuietAfter = 8, kWorthIt = 16, kMostQuietAfter = 1024;

}  // namespace

bool Deferral::note_question() {
  const uint32_t asked = questions_.load(std::memory_order_relaxed) + 1;
  questions_.store(asked, std::memory_order_relaxed);
  if (is_quiet() || asked <= quiet_after_.load(std::memory_order_relaxed) + kQuietAfter)
    return false;
  questions_.store(0, std::memory_order_relaxed);
  return true;
}

void Deferral::end_quiet() {
  const uint32_t asked = questions_.exchange(0, std::memory_order_relaxed);
  if (!is_quiet_.exchange(false)) return;
  const uint32_t after = quiet_after_.load(std::memory_order_relaxed);
  quiet_after_.store(
      asked < kWorthIt ? std::min(2 * after + kQuietAfter, kMostQuietAfter) : after / 2,
      std::memory_order_relaxed);
}

void Deferral::forget() {
  note_told();
  is_quiet_.store(false);
  has_changes_.store(false);
  questions_.store(0, std::memory_order_relaxed);
}

}  // namespace ddpsock::shim
