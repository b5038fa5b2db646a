// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The epoll family: the kernel's, corrected where readiness.h says and epoll_watch.h knows how.
#include <errno.h>

#include "base/effort.h"
#include "shim/calls.h"
#include "shim/epoll_watch.h"
#include "shim/fd_table.h"
#include "shim/memory_watch.h"
#include "shim/readiness.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
// With these a recv() returns at once; and to look for a whole FPDU would take the error away.
constexpr uint32_t kEnded = EPOLLERR | EPOLLHUP;

int created(int set) {
  engine::user_stream_engine().note_edges();
  if (set >= 0 && is_any_ours()) {
    drop_stale_fd(set);
    if (is_any_watched()) forget_watches_in(set);
    WatchedSet::forget_set(set);
  }
  return set;
}

// Corrects the reports in place and closes the gaps; returns how many are left.
int keep_true(int set, epoll_event* events, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    if (const Watched watched = find_watch(set, events[i].data); watched.fd >= 0) {
      const bool is_readable = watched.may_withdraw && (events[i].events & kReadable) != 0 &&
                               (events[i].events & kEnded) == 0;
      if (!is_report_true(watched.fd, is_readable)) events[i].events &= ~kReadable;
      // A connection that is complete now, or a socket made non-blocking since.
      if (!needs_correction(watched.fd, true)) forget_watch(set, watched.fd);
    }
    if (events[i].events != 0) events[kept++] = events[i];
  }
  return kept;
}

template <typename Wait>
int wait_corrected(int set, epoll_event* events, const PollDeadline& deadline, Wait wait) {
  for (;;) {
    const int reported = wait(events, deadline);
    if (reported <= 0) return reported;
    const int left = keep_true(set, events, reported);
    if (left > 0 || deadline.is_over()) return left;
  }
}

// Streams in shared memory first, without a system call; the kernel now and then all the same, and
// when there is nothing.
template <typename Wait>
int wait_beside_memory(WatchedSet& watched, epoll_event* events, int room,
                       const PollDeadline& deadline, Wait wait) {
  const PollDeadline now = PollDeadline::after_ms(0);
  const WatchedSet::Inside inside(watched);
  for (;;) {
    const bool may_sleep = !deadline.is_over();
    const int own = watched.collect(events, room, may_sleep);
    if (own == room || (own > 0 && !watched.is_kernel_due())) return own;
    if (own == 0 && may_sleep && !watched.settle()) continue;
    WatchedSet::tell_kernel();
    if (own == 0 && may_sleep) ++base::effort.waits;
    const int answer = wait(events + own, room - own, own > 0 ? now : deadline);
    if (answer < 0) return own > 0 ? own : answer;
    const int all = watched.merge(events, own, events + own, answer);
    if (own > 0) watched.note_kernel_asked();
    if (all > 0 || deadline.is_over()) return all;
  }
}

// `wait(events, room, deadline)` is the kernel's epoll_wait. One that is over is asked once.
template <typename Wait>
int wait_on(int set, epoll_event* events, int room, const PollDeadline& deadline, Wait wait) {
  const auto corrected = [=](epoll_event* at, int space, const PollDeadline& until) {
    if (!is_any_watched()) return wait(at, space, until);
    return wait_corrected(set, at, until, [=](epoll_event* into, const PollDeadline& d) {
      return wait(into, space, d);
    });
  };
  WatchedSet* watched = room > 0 ? WatchedSet::find(set) : nullptr;
  if (watched == nullptr) WatchedSet::tell_kernel();
  return watched != nullptr ? wait_beside_memory(*watched, events, room, deadline, corrected)
                            : corrected(events, room, deadline);
}

bool is_kernels_alone() {
  return !is_any_watched() && !is_any_set_watched();
}

}  // namespace

int own_epoll_create(int size) {
  return created(real.epoll_create(size));
}

int own_epoll_create1(int flags) {
  return created(real.epoll_create1(flags));
}

int own_epoll_ctl(int set, int operation, int fd, epoll_event* event) {
  if (is_any_set_watched() && is_ours(fd) && (event != nullptr || operation == EPOLL_CTL_DEL) &&
      WatchedSet::defer(set, operation, fd, event))
    return 0;
  const int result = real.epoll_ctl(set, operation, fd, event);
  if (result != 0 || !is_ours(fd)) return result;
  engine::user_stream_engine().note_edges();  // also of sets that this process has inherited
  if (operation != EPOLL_CTL_DEL) {
    WatchedSet::watch(set, fd, *event);
  } else if (is_any_set_watched()) {
    WatchedSet::unwatch(set, fd);
  }
  if (operation != EPOLL_CTL_DEL && needs_correction(fd, (event->events & kReadable) != 0)) {
    set_watch(set, fd, *event);
  } else if (is_any_watched()) {
    forget_watch(set, fd);
  }
  return result;
}

int own_epoll_wait(int set, epoll_event* events, int room, int timeout_ms) {
  if (is_kernels_alone()) [[likely]]
    return real.epoll_wait(set, events, room, timeout_ms);
  return wait_on(set, events, room, PollDeadline::after_ms(timeout_ms),
                 [=](epoll_event* at, int space, const PollDeadline& deadline) {
                   return real.epoll_wait(set, at, space, deadline.left_ms());
                 });
}

int own_epoll_pwait(int set, epoll_event* events, int room, int timeout_ms, const sigset_t* mask) {
  if (is_kernels_alone()) [[likely]]
    return real.epoll_pwait(set, events, room, timeout_ms, mask);
  return wait_on(set, events, room, PollDeadline::after_ms(timeout_ms),
                 [=](epoll_event* at, int space, const PollDeadline& deadline) {
                   return real.epoll_pwait(set, at, space, deadline.left_ms(), mask);
                 });
}

int own_epoll_pwait2(int set, epoll_event* events, int room, const timespec* timeout,
                     const sigset_t* mask) {
  if (is_kernels_alone()) [[likely]]
    return real.epoll_pwait2(set, events, room, timeout, mask);
  return wait_on(set, events, room, PollDeadline::after(timeout),
                 [=](epoll_event* at, int space, const PollDeadline& deadline) {
                   timespec left;
                   return real.epoll_pwait2(set, at, space, deadline.left(left), mask);
                 });
}

}  // namespace ddpsock::shim
