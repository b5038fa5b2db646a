// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/brief_use.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "base/clock.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/process.h"

namespace ddpsock::shim {
namespace {

// Such a call is over after microseconds, if its thread has the processor.
constexpr Duration kMostWait = Duration::from_ms(100);

constinit std::atomic<bool> is_allowed{false};
// Marks from here on were never anybody's.
constinit std::atomic<unsigned> marks_end{0};

bool command(int what) {
  return base::kernel_call(SYS_membarrier, what, 0, 0) == 0;
}

bool pass_barrier() {
  if (command(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return true;
  // Should a child have lost what its parent had prepared.
  return command(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
         command(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

bool is_gone(uint32_t thread) {
  return base::kernel_call(SYS_tgkill, getpid(), static_cast<int>(thread), 0) != 0 &&
         errno == ESRCH;
}

}  // namespace

constinit BriefUse::Mark BriefUse::marks[kMarks];
constinit BriefUse::Mark BriefUse::none{.handle{&none}};
thread_local constinit BriefUse::Mark* BriefUse::my_mark = nullptr;

void allow_brief_uses() {
  const base::KeepErrno keep;
  if (is_allowed.load(std::memory_order_relaxed)) return;
  if (command(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) is_allowed.store(true);
}

// A signal handler may come to it while its thread is here: then one mark is nobody's.
BriefUse::Mark* BriefUse::take_mark() {
  const base::KeepErrno keep;
  // In its memory the threads of a vfork child's parent look gone.
  if (!is_allowed.load(std::memory_order_relaxed) || is_vfork_child()) return &none;
  const uint32_t me = base::thread_id();
  my_mark = &none;
  for (unsigned i = 0; i < kMarks; ++i) {
    Mark& mark = marks[i];
    uint32_t owner = mark.thread.load(std::memory_order_relaxed);
    // Who ended in the middle keeps it.
    const bool is_left =
        owner != me && mark.generation == base::process_generation() && is_gone(owner);
    if ((owner != 0 && !is_left) || mark.handle.load(std::memory_order_relaxed) != nullptr ||
        !mark.thread.compare_exchange_strong(owner, me))
      continue;
    mark.generation = base::process_generation();
    unsigned end = marks_end.load(std::memory_order_relaxed);
    while (end <= i && !marks_end.compare_exchange_weak(end, i + 1)) {
    }
    return my_mark = &mark;
  }
  return my_mark;
}

// Of all threads.
class BriefUses {
 public:
  // Until `deadline`. False: one has `handle` still.
  static bool await(const message::Handle& handle, Time deadline) {
    const unsigned end = marks_end.load();
    for (unsigned i = 0; i < end; ++i) {
      const BriefUse::Mark& mark = BriefUse::marks[i];
      while (mark.handle.load(std::memory_order_acquire) == &handle) {
        if (&mark == BriefUse::my_mark || base::now() >= deadline) return false;
        sched_yield();
      }
    }
    return true;
  }
};

namespace {

// Handles that were in use for long, or that no barrier was passed for: what a thread was about to
// do with one then, it has done after so long, or its mark says so.
constexpr Duration kSafe = Duration::from_ms(1000);
struct Kept {
  std::atomic<message::Handle*> handle{nullptr};
  Time since{};
};
constinit std::array<Kept, 64> all_kept{};

// Without a place for it, it stays for good.
void keep(message::Handle& handle) {
  for (Kept& kept : all_kept) {
    message::Handle* none = nullptr;
    message::Handle* const entering = reinterpret_cast<message::Handle*>(&kept);
    if (!kept.handle.compare_exchange_strong(none, entering)) continue;
    kept.since = base::now();
    kept.handle.store(&handle, std::memory_order_release);
    return;
  }
}

void destroy_kept() {
  for (Kept& kept : all_kept) {
    message::Handle* handle = kept.handle.load(std::memory_order_acquire);
    if (handle == nullptr || handle == reinterpret_cast<message::Handle*>(&kept)) continue;
    const Time now = base::now();
    if (now - kept.since < kSafe || !BriefUses::await(*handle, now)) continue;
    if (kept.handle.compare_exchange_strong(handle, nullptr)) handle->destroy();
  }
}

}  // namespace

void destroy_after_brief_uses(message::Handle& handle) {
  const base::KeepErrno keep_errno;
  destroy_kept();
  // What a child has of its parent's is destroyed by nobody, and its marks are of threads that it
  // has not.
  const bool is_free = handle.is_foreign() || marks_end.load() == 0 ||
                       (pass_barrier() && BriefUses::await(handle, base::now() + kMostWait));
  if (is_free) {
    handle.destroy();
  } else {
    keep(handle);
  }
}

}  // namespace ddpsock::shim
