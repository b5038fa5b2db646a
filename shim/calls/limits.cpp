// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program that limits its memory while it listens: clients have been told that there is room for
// their connections, which is taken with the first. So it is taken before.
#include <sys/resource.h>
#include <unistd.h>

#include "base/keep_errno.h"
#include "shim/calls.h"
#include "shim/fd_table.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

bool is_listening() {
  for (int fd = 0; fd < fds_end(); ++fd)
    if (const SocketUse use(fd); use && use.phase() == Phase::kListening) return true;
  return false;
}

constexpr bool is_of_memory(int what) {
  return what == RLIMIT_AS || what == RLIMIT_DATA;
}

void before_limit(const rlimit* limit) {
  if (limit == nullptr || limit->rlim_cur == RLIM_INFINITY) return;
  if (!is_any_ours() || is_vfork_child() || !is_listening()) return;
  const base::KeepErrno keep;
  engine::user_stream_engine().is_available();
}

}  // namespace

// AddressSanitizer's runtime sets a limit before instrumented code can run.
__attribute__((no_sanitize("address"))) int own_setrlimit(int what, const rlimit* limit) {
  if (is_of_memory(what)) before_limit(limit);
  return real.setrlimit(what, limit);
}

int own_prlimit(pid_t process, int what, const rlimit* limit, rlimit* before) {
  if (is_of_memory(what) && (process == 0 || process == getpid())) before_limit(limit);
  return real.prlimit(process, what, limit, before);
}

}  // namespace ddpsock::shim
