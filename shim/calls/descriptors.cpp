// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What programs do with the descriptor itself: close and its ranges, dup in all forms, fcntl,
// ioctl.
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "engine/observer.h"
#include "shim/calls.h"
#include "shim/calls/leaving.h"
#include "shim/calls/stdio_files.h"
#include "shim/pollers/watched_sets.h"
#include "shim/program_memory.h"
#include "shim/real.h"
#include "shim/stream_call.h"
#include "shim/tcp_counts.h"
#include "shim/threads.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

namespace ddpsock::shim {
namespace {

// What is recorded to lies under a number of this process's, not of a child's in its memory.
void make_room_at(unsigned first, unsigned last) {
  if (!engine::is_observed.load(std::memory_order_relaxed)) [[likely]]
    return;
  if (is_any_ours() && !has_other_descriptors()) engine::observer->make_room(first, last);
}
void make_room_at(int fd) {
  if (fd >= 0) make_room_at(static_cast<unsigned>(fd), static_cast<unsigned>(fd));
}

void duplicated(int from, int to) {
  if (to < 0 || from == to) return;
  const int saved_errno = errno;
  // Numbers of a table of its own say nothing of sockets and sets.
  if (is_any_ours() && has_other_descriptors()) {
    errno = saved_errno;
    return;
  }
  const Hint hint = hint_of(from);
  set_hint(to, hint.origin, hint.reason);
  drop_stale_fd(to);
  share_set(from);
  forget_set(to);
  // Then its duplicates must share a Socket from now on.
  if (!is_ours(from) && may_be_chosen_later(from)) enter_fd(from);
  // There it would not be known.
  if (is_ours(from) && static_cast<unsigned>(to) >= kMaxFds)
    leave_ddp_mode(from, "a descriptor with a number above all that are kept");
  else if (is_ours(from))
    share_fd(from, to);
  cover_standard_file(to);
  errno = saved_errno;
}

// A limit that was lowered leaves what is open beyond it.
bool is_below_limit(int fd) {
  rlimit files;
  return getrlimit(RLIMIT_NOFILE, &files) != 0 || static_cast<rlim_t>(fd) < files.rlim_cur;
}

// `target` is about to be replaced: the stream's last words come before the kernel's close. Nothing
// is given up if the call is bound to fail.
void make_room(int from, int target) {
  if (from != target && is_ours(target) && is_below_limit(target) && real.fcntl(from, F_GETFD) >= 0)
    drop_fd(target);
}

// Kernels before 5.9 have no such call, and filters refuse it whole.
bool can_close_ranges() {
  return real.close_range(~0u, ~0u, 0) == 0;
}

void note_nonblocking(int fd, bool is_nonblocking) {
  if (const SocketUse use(fd); use)
    use->is_nonblocking.store(is_nonblocking, std::memory_order_relaxed);
}

// A signal is an edge.
void note_async(int fd) {
  const base::KeepErrno keep;
  engine::user_stream_engine().note_edges();
  SocketUse use(fd);
  if (use && use.phase() == Phase::kStream && is_true_entry(use, fd))
    use->stream.load(std::memory_order_acquire)->settle(fd);
}

void correct_queued(int fd, void* argument) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase())) return;
  int* const count = static_cast<int*>(argument);
  *count = queued_of_stream(*use->stream.load(std::memory_order_acquire), *count);
}

}  // namespace

int chosen_close(int fd) {
  // A thread that is cancelled in it has closed nothing; behind that, both or neither.
  base::cancellation_point();
  const base::UncancelledCall whole;
  const int saved_errno = errno;
  drop_fd(fd);
  errno = saved_errno;
  return real.close(fd);
}

int own_close_range(unsigned first, unsigned last, int flags) {
  if (flags == 0 && first <= last) make_room_at(first, last);
  const auto wanted = static_cast<unsigned>(flags);
  const bool is_private = (wanted & CLOSE_RANGE_UNSHARE) != 0;
  // What is private now stays so when there is something of ours.
  if ((!is_any_ours() && !is_private) || first > last ||
      (wanted & ~(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE)) != 0 || !can_close_ranges())
    return real.close_range(first, last, flags);
  if (is_private) {
    const OtherThreads others = other_threads();
    if (others == OtherThreads::kPrograms) note_own_descriptors();
    // The program does not know of that one, which would keep all open.
    if (others == OtherThreads::kLibrarys) flags &= ~static_cast<int>(CLOSE_RANGE_UNSHARE);
  }
  if ((wanted & CLOSE_RANGE_CLOEXEC) != 0) return real.close_range(first, last, flags);
  drop_fd_range(first, last);
  // What carries the streams through exec is not the program's to close.
  const int kept_fd = engine::user_stream_engine().handover_fd();
  const auto kept = static_cast<unsigned>(kept_fd);
  if (kept_fd < 0 || kept < first || kept > last) return real.close_range(first, last, flags);
  const int below = kept > first ? real.close_range(first, kept - 1, flags) : 0;
  return below == 0 && kept < last ? real.close_range(kept + 1, last, flags) : below;
}

void own_closefrom(int first) {
  make_room_at(static_cast<unsigned>(std::max(first, 0)), ~0u);
  if (!is_any_ours()) return real.closefrom(first);
  drop_fd_range(first < 0 ? 0 : static_cast<unsigned>(first), ~0u);
  const int kept = engine::user_stream_engine().handover_fd();
  if (kept < 0 || kept < first) return real.closefrom(first);
  if (kept > std::max(first, 0))
    real.close_range(static_cast<unsigned>(std::max(first, 0)), static_cast<unsigned>(kept) - 1, 0);
  real.closefrom(kept + 1);
}

int own_dup(int fd) {
  const int copy = real.dup(fd);
  duplicated(fd, copy);
  return copy;
}

int own_dup2(int fd, int target) {
  make_room_at(target);
  make_room(fd, target);
  const int copy = real.dup2(fd, target);
  duplicated(fd, copy);
  return copy;
}

int own_dup3(int fd, int target, int flags) {
  if ((flags & ~O_CLOEXEC) == 0) {
    make_room_at(target);
    make_room(fd, target);
  }
  const int copy = real.dup3(fd, target, flags);
  duplicated(fd, copy);
  return copy;
}

int own_fcntl(int fd, int command, void* argument) {
  switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC: {
      const int copy = real.fcntl(fd, command, argument);
      duplicated(fd, copy);
      return copy;
    }
    case F_SETFL: {
      const int result = real.fcntl(fd, command, argument);
      const auto flags = reinterpret_cast<intptr_t>(argument);
      if (result == 0 && is_ours(fd)) note_nonblocking(fd, (flags & O_NONBLOCK) != 0);
      if (result == 0 && (flags & O_ASYNC) != 0) note_async(fd);
      return result;
    }
    default:
      return real.fcntl(fd, command, argument);
  }
}

int chosen_ioctl(int fd, unsigned long request, void* argument) {
  const auto on_libc = [=] { return ssize_t{real.ioctl(fd, request, argument)}; };
  if (request == FIONREAD && is_sound(argument, sizeof(int))) {
    const auto on_stream = [=](engine::Stream& stream) {
      const engine::Io io = stream.readable(fd, true);
      if (!io.is_ok()) return io;
      *static_cast<int*>(argument) = static_cast<int>(io.count);
      return engine::Io::ok(0);
    };
    if (SocketUse use(fd); use) {
      if (choose_server(use, fd, MSG_DONTWAIT, Direction::kReceive) == Server::kLater) {
        *static_cast<int*>(argument) = 0;
        return 0;
      }
      if (const auto result = serve_stream(use, fd, MSG_DONTWAIT, Direction::kReceive, on_stream))
        return static_cast<int>(*result);
    }
    return static_cast<int>(on_libc());
  }
  const int result = static_cast<int>(on_libc());
  if ((request == SIOCOUTQ || request == SIOCOUTQNSD) && result == 0) correct_queued(fd, argument);
  if (request == FIONBIO && result == 0) note_nonblocking(fd, *static_cast<int*>(argument) != 0);
  if (request == FIOASYNC && result == 0 && *static_cast<int*>(argument) != 0) note_async(fd);
  return result;
}

}  // namespace ddpsock::shim
