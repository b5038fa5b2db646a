// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/spin.h"

#include <sched.h>

#include <algorithm>

#include "base/effort.h"

namespace ddpsock::base {

namespace {
__attribute__((tls_model("initial-exec"))) thread_local constinit Spin spin;

}  // namespace

uint32_t current_cpu() {
  const int cpu = sched_getcpu();
  return cpu >= 0 ? static_cast<uint32_t>(cpu) + 1 : 0;
}

void Spin::count(bool has_found) {
  ++effort.spins;
  if (!has_found) ++effort.vain_spins;
}

Spin& Spin::mine() {
  return spin;
}

bool Spin::is_worth(uint32_t peer_cpu, uint32_t other_peer_cpu) {
  const uint32_t here = current_cpu();
  if (here == 0 || peer_cpu == 0 || peer_cpu == here || other_peer_cpu == here) return false;
  if (skip_ > 0) {
    --skip_;
    return false;
  }
  return not_before_.ns == 0 || base::now() >= not_before_;
}

bool Spin::is_beside(uint32_t peer_cpu) const {
  return peer_cpu != 0 && peer_cpu == current_cpu();
}

bool Spin::may_yield() {
  if (yield_credit_ == 0 && ++skipped_yields_ % kLeastSkipped != 0) return false;
  return pause_.ns == 0 || base::now() >= no_yield_before_;
}

// False: it took so long that somebody else than the peer must have run.
bool Spin::yield() {
  const Time before = base::now();
  sched_yield();
  const Time now = base::now();
  if (now - before < kLostSlice) {
    if (++quick_yields_ % kYieldsToForget == 0) pause_ = {};
    return true;
  }
  pause_ = std::clamp(Duration{2 * pause_.ns}, kLeastPause, kMostPause);
  no_yield_before_ = now + pause_;
  return false;
}

bool Spin::on_yield(bool has_found) {
  if (has_found) {
    yield_credit_ = std::min(yield_credit_ + 1, kMostCredit);
  } else if (yield_credit_ > 0) {
    --yield_credit_;
  }
  return has_found;
}

bool Spin::on_found() {
  count(true);
  is_probe_ = false;
  credit_ = std::min(credit_ + 1, kMostCredit);
  next_skip_ = kLeastSkipped;
  not_before_ = {};
  return true;
}

bool Spin::on_nothing() {
  count(false);
  if (credit_ > 0) {
    --credit_;
    return false;
  }
  is_probe_ = true;
  skip_ = next_skip_;
  next_skip_ = std::min(next_skip_ * 2, kMostSkipped);
  return false;
}

bool Spin::on_lost(Time now) {
  count(false);
  not_before_ = now + kAfterLoss;
  return false;
}

}  // namespace ddpsock::base
