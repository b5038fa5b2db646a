// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/standstill.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/keep_errno.h"
#include "base/process.h"
#include "relatives/record.h"

namespace ddpsock::engine {
namespace {

// Signal handlers of who executes may make calls too.
[[gnu::tls_model("initial-exec")]] thread_local constinit uint32_t own_standstills = 0;

constexpr Duration kLongest = Duration::from_ms(1000);
constinit std::atomic<int64_t> until_ns{0};

constexpr uint64_t kCount = UINT32_MAX;

uint64_t this_process() {
  return uint64_t{base::process_generation()} << 32;
}

}  // namespace

alignas(64) constinit std::atomic<uint64_t> Standstill::state_{0};

void Standstill::begin() {
  ++own_standstills;
  until_ns.store((base::now() + kLongest).ns);
  const uint64_t process = this_process();
  uint64_t seen = state_.load();
  uint64_t next;
  do {
    next = ((seen & ~kCount) == process ? seen : process) + 1;
  } while (!state_.compare_exchange_weak(seen, next));
}

void Standstill::end() {
  --own_standstills;
  const uint64_t process = this_process();
  uint64_t seen = state_.load();
  do {
    if ((seen & ~kCount) != process) return;
  } while (!state_.compare_exchange_weak(seen, (seen & kCount) == 1 ? 0 : seen - 1));
  const base::KeepErrno keep;
  base::futex_wake_all(state_);
}

bool Standstill::concerns_caller() {
  uint64_t seen = state_.load();
  if (seen == 0 || own_standstills != 0) return false;
  if ((seen & ~kCount) == this_process()) return base::now().ns < until_ns.load();
  state_.compare_exchange_strong(seen, 0);
  return false;
}

void Standstill::wait() {
  const base::KeepErrno keep;
  const uint32_t copies = base::thread_copies();
  while (copies == base::thread_copies() && concerns_caller()) {
    const Duration left{until_ns.load() - base::now().ns};
    if (left.ns <= 0) return;
    if (const uint64_t seen = state_.load(); seen != 0) base::futex_wait(state_, seen, left);
  }
}

bool Standstill::wait_asleep(SleepMark& mark) {
  if (!concerns_caller()) return true;
  const uint32_t copies = base::thread_copies();
  mark = true;
  wait();
  if (copies != base::thread_copies()) return false;
  mark = false;
  return true;
}

}  // namespace ddpsock::engine
