// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whose a descriptor is. The number that a program passes is the stream's only as long as the
// program has not closed it and got it back for something else; a socket's cookie is never used
// again. Closes that pass the library by (io_uring, the bare instruction) are seen by the cookie
// alone, which is compared once somebody has slept, and at most once in a tick of the coarse clock.
#include "stream/identity.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/socket_option.h"
#include "base/sys.h"
#include "stream/hold.h"

namespace ddpsock::engine {
namespace {

constinit std::atomic<StreamEngine::Naming> naming{nullptr};

// Connection::outliving of all connections. A forked child gets copies that its program knows
// nothing of, and which would keep the peer from seeing an end. The program may close their numbers
// (closefrom) and get them for something else.
struct Outliving {
  std::atomic<int> fd;  // plus 1; 0: none, -1: being entered
  uint64_t cookie;
};
constexpr size_t kMostOutliving = 64;
constinit std::array<Outliving, kMostOutliving> all_outliving{};

void close_in_child() {
  const base::KeepErrno keep;
  for (Outliving& one : all_outliving) {
    const int fd = one.fd.exchange(0) - 1;
    if (fd >= 0 && cookie_of(fd) == one.cookie) base::close_own(fd);
  }
}

bool note_outliving(int fd, uint64_t cookie) {
  static constinit std::atomic<bool> has_handler{false};
  if (!has_handler.load(std::memory_order_relaxed) && !has_handler.exchange(true))
    pthread_atfork(nullptr, nullptr, close_in_child);
  for (Outliving& one : all_outliving) {
    int none = 0;
    if (!one.fd.compare_exchange_strong(none, -1)) continue;
    one.cookie = cookie;
    one.fd.store(fd + 1);
    return true;
  }
  return false;
}

// False: it is closed already, because this is a child.
bool forget_outliving(int fd) {
  return std::ranges::any_of(all_outliving, [&](Outliving& one) {
    int noted = fd + 1;
    return one.fd.compare_exchange_strong(noted, 0);
  });
}

}  // namespace

void set_naming(StreamEngine::Naming names) {
  naming.store(names, std::memory_order_relaxed);
}

uint64_t cookie_of(int fd) {
  const base::KeepErrno keep;
  return base::socket_option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE).value_or(0);
}

bool is_my_cookie(const Connection& c, int fd) {
  return c.r.cookie == 0 || cookie_of(fd) == c.r.cookie;
}

int still_named(Connection& c, int fd) {
  if (fd < 0) return -1;
  // Either whoever closes the number sees that we are awake and waits, or we see that it is gone.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto names = naming.load(std::memory_order_relaxed);
  const bool is_denied = names != nullptr && !names(fd, c.stream);
  return !is_denied && c.stream.is_behind(fd) ? fd : -1;
}

int going_on(Connection& c, int fd) {
  const int named = still_named(c, fd);
  return named >= 0 ? named : outliving(c);
}

void outlive(Connection& c, int fd) {
  const base::KeepErrno keep;
  if (c.outliving.load(std::memory_order_relaxed) >= 0 || !is_my_cookie(c, fd)) return;
  base::UniqueFd copy(base::sys.fcntl(fd, F_DUPFD_CLOEXEC, base::high_number()));
  if (!copy.is_valid() || !note_outliving(copy.get(), cookie_of(copy.get()))) return;
  int none = -1;
  if (c.outliving.compare_exchange_strong(none, copy.get()))
    static_cast<void>(copy.release());
  else
    forget_outliving(copy.get());
}

int outliving(const Connection& c) {
  const int fd = c.outliving.load(std::memory_order_acquire);
  return fd >= 0 && is_my_cookie(c, fd) ? fd : -1;
}

base::UniqueFd take_outliving(Connection& c) {
  const int fd = c.outliving.exchange(-1, std::memory_order_acq_rel);
  const bool is_there = fd >= 0 && forget_outliving(fd) && is_my_cookie(c, fd);
  return base::UniqueFd(is_there ? fd : -1);
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
