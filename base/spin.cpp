// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/spin.h"

#include <sched.h>

#include <algorithm>

namespace ddpsock::base {

namespace {
__attribute__((tls_model("initial-exec"))) thread_local constinit Spin spin;
}

uint32_t current_cpu() {
  const int cpu = sched_getcpu();
  return cpu >= 0 ? static_cast<uint32_t>(cpu) + 1 : 0;
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

bool Spin::on_found() {
  is_probe_ = false;
  credit_ = std::min(credit_ + 1, kMostCredit);
  next_skip_ = kLeastSkipped;
  not_before_ = {};
  return true;
}

bool Spin::on_nothing() {
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
  not_before_ = now + kAfterLoss;
  return false;
}

}  // namespace ddpsock::base
