// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/change_lease.h"

#include <new>

#include "base/clock.h"
#include "base/keep_errno.h"
#include "base/spin.h"

namespace ddpsock::shim {
namespace {

constexpr int kLooks = 200;  // without sleeping
constexpr Duration kPatience = Duration::from_ms(1000);

}  // namespace

bool ChangeLease::acquire_after(base::Lease::Outcome got) {
  using Outcome = base::Lease::Outcome;
  for (int look = 0; got == Outcome::kBusy && look < kLooks; ++look) {
    base::Spin::relax();
    if (!lease_.is_held()) got = lease_.try_acquire();
  }
  if (got == Outcome::kBusy && !is_in_doubt()) {
    const base::KeepErrno keep;
    const Time give_up = base::now() + kPatience;
    do {
      got = lease_.acquire(give_up);
    } while (got == Outcome::kInterrupted);
  }
  if (got == Outcome::kBusy || got == Outcome::kHeldByMe) {
    doubt();
    got = lease_.try_acquire();  // who has just released it may not have seen that
  } else if (got == Outcome::kInherited) {
    doubt();
  }
  return got == Outcome::kAcquired || got == Outcome::kInherited;
}

void ChangeLease::renew() {
  new (&lease_) base::Lease;
}

}  // namespace ddpsock::shim
