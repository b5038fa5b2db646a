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

// A sanitizer's runtime sets limits before functions with variables in memory can run under it, so
// what is asked first is asked by the callers.
[[gnu::noinline, gnu::cold]] void before_limit(int what, const rlimit* limit) {
  const bool is_of_memory = what == RLIMIT_AS || what == RLIMIT_DATA;
  if (!is_of_memory || limit == nullptr || limit->rlim_cur == RLIM_INFINITY) return;
  if (is_vfork_child() || !is_listening()) return;
  const base::KeepErrno keep;
  engine::user_stream_engine().is_available();
}

}  // namespace

int own_setrlimit(int what, const rlimit* limit) {
  if (is_any_ours()) before_limit(what, limit);
  return real.setrlimit(what, limit);
}

int own_prlimit(pid_t process, int what, const rlimit* limit, rlimit* before) {
  if (is_any_ours() && (process == 0 || process == getpid())) before_limit(what, limit);
  return real.prlimit(process, what, limit, before);
}

}  // namespace ddpsock::shim
