// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whose a descriptor is. The number that a program passes is the stream's only as long as the
// program has not closed it and got it back for something else; a socket's cookie is never used
// again. Closes that pass the library by (io_uring, the bare instruction) are seen by the cookie
// alone, which is compared once somebody has slept, and at most once in a tick of the coarse clock.
#include "engine/user/identity.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/sys.h"
#include "engine/user/hold.h"

namespace ddpsock::engine {
namespace {

constinit std::atomic<StreamEngine::Naming> naming{nullptr};

// Connection::outliving of all connections, 0: room. A forked child gets copies that its program
// knows nothing of, and which would keep the peer from seeing an end.
constexpr size_t kMostOutliving = 64;
constinit std::array<std::atomic<int>, kMostOutliving> outliving_fds{};

void close_in_child() {
  const base::KeepErrno keep;
  for (std::atomic<int>& entry : outliving_fds)
    if (const int fd = entry.exchange(0); fd != 0) base::sys.close(fd);
}

bool note_outliving(int fd) {
  static constinit std::atomic<bool> has_handler{false};
  if (!has_handler.load(std::memory_order_relaxed) && !has_handler.exchange(true))
    pthread_atfork(nullptr, nullptr, close_in_child);
  return std::ranges::any_of(outliving_fds, [&](std::atomic<int>& entry) {
    int none = 0;
    return entry.compare_exchange_strong(none, fd);
  });
}

// False: it is closed already, because this is a child.
bool forget_outliving(int fd) {
  return std::ranges::any_of(outliving_fds, [&](std::atomic<int>& entry) {
    int noted = fd;
    return entry.compare_exchange_strong(noted, 0);
  });
}

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
  if (!copy.is_valid() || !note_outliving(copy.get())) return;
  int none = -1;
  if (c.outliving.compare_exchange_strong(none, copy.get()))
    static_cast<void>(copy.release());
  else
    forget_outliving(copy.get());
}

base::UniqueFd take_outliving(Connection& c) {
  const int fd = c.outliving.exchange(-1, std::memory_order_acq_rel);
  return base::UniqueFd(fd >= 0 && forget_outliving(fd) ? fd : -1);
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
