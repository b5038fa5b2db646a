// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <cstddef>
#include <string_view>

#include "base/fd.h"
#include "base/kernel_call.h"
#include "shim/policy/our_calls.h"

namespace ddpsock::shim {
namespace {

using base::kernel_call;

// What differs from time to time is -1: no descriptor, process or address, and no size. None of the
// calls does anything with that that would outlive the child.
void make(const OurCall& call) {
  each_form(call, [&](const OurArguments& form) {
    const auto value = [&](size_t i) { return form.values[i] == kAny ? -1 : form.values[i]; };
    base::kernel_call_of_longs(call.number, value(0), value(1), value(2), value(3), value(4),
                               value(5));
  });
}

// Now, or again without executing a program.
bool may_be_superuser() {
  uid_t real = 0, effective = 0, saved = 0;
  kernel_call(SYS_getresuid, &real, &effective, &saved);
  return real == 0 || effective == 0 || saved == 0;
}

[[noreturn]] void try_all() {
  // A handler of the program's is not to see the signal of a refused call, and nobody a core dump;
  // of one byte, which also those take for none that are given to a program.
  struct {
    void (*handler)(int) = SIG_DFL;
    unsigned long flags = 0;
    void (*restorer)() = nullptr;
    unsigned long mask = 0;
  } const usual;
  kernel_call(SYS_rt_sigaction, SIGSYS, &usual, nullptr, sizeof usual.mask);
  const rlimit one{1, 1};
  kernel_call(SYS_prlimit64, 0, RLIMIT_CORE, &one, nullptr);
  for (const OurCall& call : kNeededCalls) make(call);
  for (const OurCall& call : kDispensableCalls) make(call);
  // Filters of services forbid it as a rule (systemd's @privileged).
  if (may_be_superuser()) make(kSuperusersCall);
  for (;;) kernel_call(SYS_exit_group, 0);
}

}  // namespace

bool is_under_filter() {
  constexpr std::string_view kNone = "\nSeccomp:\t0\n", kLine = "\nSeccomp:\t";
  const auto fd = static_cast<int>(
      kernel_call(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC, 0));
  if (fd < 0) return false;
  std::array<char, 4096> text;
  const long n = kernel_call(SYS_read, fd, text.data(), text.size());
  base::close_own(fd);
  const std::string_view status(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  return status.find(kLine) != status.npos && status.find(kNone) == status.npos;
}

bool survives_our_calls() {
  // No signal tells the program of its end, nor does a wait of the program's find it.
  const long child = base::kernel_call_of_longs(SYS_clone, 0, 0, 0, 0, 0, 0);
  if (child == 0) try_all();
  if (child < 0) return true;
  int status = 0;
  while (kernel_call(SYS_wait4, child, &status, __WALL, nullptr) < 0)
    if (errno != EINTR) return true;
  return WIFEXITED(status);
}

}  // namespace ddpsock::shim
