// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/standstill.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/process.h"
#include "engine/user/relatives/record.h"

namespace ddpsock::engine {
namespace {

// Signal handlers of who executes may make calls too.
[[gnu::tls_model("initial-exec")]] thread_local constinit uint32_t own_standstills = 0;

constexpr Duration kLongest = Duration::from_ms(1000);

constexpr uint64_t of_process(uint32_t generation) {
  return uint64_t{generation} << 32;
}

}  // namespace

constinit std::atomic<uint64_t> Standstill::state_{0};

void Standstill::begin() {
  ++own_standstills;
  const uint64_t process = of_process(base::process_generation());
  uint64_t seen = state_.load();
  uint64_t next;
  do {
    const bool is_ours = (seen & ~uint64_t{UINT32_MAX}) == process;
    next = (is_ours ? seen : process) + 1;
  } while (!state_.compare_exchange_weak(seen, next));
}

void Standstill::end() {
  --own_standstills;
  const uint64_t process = of_process(base::process_generation());
  uint64_t seen = state_.load();
  while (!state_.compare_exchange_weak(seen, seen - 1 == process ? 0 : seen - 1)) {
  }
}

int Standstill::stand(SleepMark& mark) {
  const base::KeepErrno keep;
  const uint32_t copies = base::thread_copies();
  const auto is_on = [] {
    return own_standstills == 0 && state_.load() >> 32 == base::process_generation();
  };
  const Time give_up = base::now() + kLongest;
  while (is_on() && base::now() < give_up) {
    mark = true;
    constexpr timespec kSoon{.tv_sec = 0, .tv_nsec = 200'000};
    base::kernel_call(SYS_nanosleep, &kSoon, nullptr);  // libc's would be a cancellation point
    if (copies != base::thread_copies()) return EINTR;
    mark = false;
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  return copies != base::thread_copies() ? EINTR : 0;
}

}  // namespace ddpsock::engine
