// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/spare_descriptor.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "base/kernel_call.h"

namespace ddpsock::shim {
namespace {

constexpr size_t kStack = 16 * 1024;

struct Errand {
  int missing;
  void (*ask)(void* context);
  void* context;
};

int run(void* errand) {
  const auto& e = *static_cast<Errand*>(errand);
  base::close_own(e.missing);
  e.ask(e.context);
  return 0;
}

}  // namespace

// A child that shares the memory and not the table of descriptors. It announces its end to nobody:
// a program that waits for its children does not see it.
bool with_spare_descriptor(int kept, void (*ask)(void* context), void* context) {
  alignas(16) char stack[kStack];
  Errand errand{kept == 0 ? 1 : 0, ask, context};
  const uint64_t all = ~uint64_t{0};
  uint64_t mask = 0;
  base::kernel_call(SYS_rt_sigprocmask, SIG_BLOCK, &all, &mask, sizeof mask);
  const int child = clone(run, stack + kStack, CLONE_VM | CLONE_VFORK, &errand);
  if (child > 0) base::kernel_call(SYS_wait4, child, nullptr, __WCLONE, nullptr);
  base::kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, &mask, nullptr, sizeof mask);
  return child > 0;
}

}  // namespace ddpsock::shim
