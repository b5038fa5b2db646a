// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whose a descriptor is. The number that a program passes is the stream's only as long as the
// program has not closed it and got it back for something else; a socket's cookie is never used
// again. Closes that pass the library by (io_uring, the bare instruction) are seen by the cookie
// alone, which is compared once somebody has slept, and at most once in a tick of the coarse clock.
#include "engine/user/identity.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/sys.h"
#include "engine/user/hold.h"

namespace ddpsock::engine {
namespace {

constinit std::atomic<StreamEngine::Naming> naming{nullptr};

}  // namespace

void set_naming(StreamEngine::Naming names) {
  naming.store(names, std::memory_order_relaxed);
}

uint64_t cookie_of(int fd) {
  const base::KeepErrno keep;
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return base::sys.getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

bool is_my_cookie(const Connection& c, int fd) {
  return c.r.cookie == 0 || cookie_of(fd) == c.r.cookie;
}

int still_named(Connection& c, int fd) {
  if (fd < 0) return -1;
  // Either whoever closes the number sees that we are awake and waits, or we see that it is gone.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto names = naming.load(std::memory_order_relaxed);
  if (names != nullptr && !names(fd, c.stream)) {
    fd = c.outliving.load(std::memory_order_acquire);
    if (fd < 0) return -1;
  }
  return c.stream.is_behind(fd) ? fd : -1;
}

void outlive(Connection& c, int fd) {
  const base::KeepErrno keep;
  if (c.outliving.load(std::memory_order_relaxed) >= 0 || !is_my_cookie(c, fd)) return;
  base::UniqueFd copy(base::sys.fcntl(fd, F_DUPFD_CLOEXEC, base::high_number()));
  int none = -1;
  if (copy.is_valid() && c.outliving.compare_exchange_strong(none, copy.get()))
    static_cast<void>(copy.release());
}

void await_calls(Connection& c, Time give_up) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto await = [&](base::Lease& lease, const SleepMark& is_asleep) {
    while (!is_asleep && base::now() < give_up) {
      Hold hold(c, lease);
      // By ourselves: a signal handler closes what the call that it interrupted is about.
      if (hold.attempt() != base::Lease::Outcome::kBusy) return;
      sched_yield();
    }
  };
  await(c.rx.lease, c.rx.is_asleep);
  await(c.tx.lease, c.tx.is_asleep);
}

}  // namespace ddpsock::engine
