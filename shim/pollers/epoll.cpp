// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The epoll family: the kernel's, corrected where readiness.h says and epoll_watch.h knows how.
#include <errno.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "base/effort.h"
#include "base/spin.h"
#include "base/wake.h"
#include "shim/calls.h"
#include "shim/fd_table.h"
#include "shim/pollers/epoll_watch.h"
#include "shim/pollers/memory_bells.h"
#include "shim/pollers/memory_look.h"
#include "shim/pollers/readiness.h"
#include "shim/pollers/set_change.h"
#include "shim/pollers/set_wait.h"
#include "shim/pollers/watched_sets.h"
#include "shim/program_memory.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;
// With these a recv() returns at once; and to look for a whole FPDU would take the error away.
constexpr uint32_t kEnded = EPOLLERR | EPOLLHUP;

int created(int set) {
  if (set < 0) return set;
  drop_stale_fd(set);
  if (is_any_watched()) forget_watches_in(set);
  note_set_created(set);
  return set;
}

// What of the kernel's report about a watch is not so.
uint32_t untrue_of(const Watched& watched, uint32_t reported) {
  const uint32_t judged = watched.may_withdraw && (reported & kEnded) == 0 ? reported : 0;
  uint32_t untrue = 0;
  if (!is_report_true(watched.fd, (judged & kReadable) != 0)) untrue |= kReadable;
  if ((judged & kWritable) != 0 && !is_room_report_true(watched.fd)) untrue |= kWritable;
  return untrue;
}

// Corrects the reports in place and closes the gaps; returns how many are left.
int keep_true(int set, epoll_event* events, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    if (const Watched watched = find_watch(set, events[i].data); watched.fd >= 0) {
      const uint32_t untrue = untrue_of(watched, events[i].events);
      if (untrue != 0 && may_withdraw_from(set, events[i].data)) events[i].events &= ~untrue;
      // A connection that is complete now, or a socket made non-blocking since.
      if (!needs_watch(watched.fd, watched.may_withdraw)) forget_watch(set, watched.fd);
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
    if (!deadline.rest_after_vain_round()) return -1;
  }
}

// Adds one answer of the kernel's: what is in `events` already is not added again.
int absorb(epoll_event* events, int count, const epoll_event* answer, int got) {
  const int before = count;
  for (int i = 0; i < got; ++i) {
    const uint64_t data = answer[i].data.u64;
    const auto is_same = [=](const epoll_event& e) { return e.data.u64 == data; };
    // Two descriptors may have the same data.
    auto nth = std::count_if(answer, answer + i, is_same);
    epoll_event* same = std::find_if(events, events + before, is_same);
    for (; nth > 0 && same != events + before; --nth)
      same = std::find_if(same + 1, events + before, is_same);
    if (same != events + before) {
      same->events |= answer[i].events;
    } else {
      events[count++] = answer[i];
    }
  }
  return count;
}

// `ask(events, room)` is the kernel's answer without waiting; a few times where bells took the
// place of others.
template <typename Ask>
int ask_again(WatchedSet& watched, epoll_event* events, int count, int room, Ask ask) {
  constexpr int kMostTimes = 8;
  std::array<epoll_event, 64> answer;
  for (int time = 0; time < kMostTimes; ++time) {
    const int most = std::min(room - count, static_cast<int>(answer.size()));
    if (most <= 0) break;
    const int got = ask(answer.data(), most);
    if (got <= 0) break;
    count = absorb(events, count, answer.data(), without_bells(watched, answer.data(), got));
    if (got < most) break;
  }
  return count;
}

// Adds to `count` events of the kernel's what is ready in memory, and so on, until nothing is left
// out that was ready before something that is reported.
template <typename Wait>
int report(WatchedSet& watched, MemoryLook& look, epoll_event* events, int count, int room,
           Wait wait) {
  const auto ask = [=](epoll_event* at, int space) {
    return wait(at, space, PollDeadline::after_ms(0));
  };
  const auto ask_quiet = [&](epoll_event* at, int space) {
    return is_any_watched() ? ask(at, space) : watched.ask(at, space);
  };
  look.know({events, static_cast<size_t>(count)});
  if (count > 0) look.find();
  // An event of the kernel's may have been an old bell's, and true only since. Where its answer has
  // left no room nothing that is heard now would find a place.
  for (bool is_first = true; count < room && (is_first || look.find()); is_first = false) {
    const std::span<const int> wires = look.wires();
    const bool has_others = watched.members().others().is_any() || !wires.empty();
    const bool is_asked = has_others && wires.empty() && watched.deferral().is_quiet();
    const bool is_due = !is_asked && is_first && count == 0 && watched.kernel_turn().is_due();
    if (!has_others && !is_due) break;
    const bool is_quiet = wires.empty() && watched.ask_quietly();
    if (!is_quiet && !is_due && !watched.members().others().may_be_ready(wires)) break;
    // Where there is not enough room for all, its answer goes first: it gives each a turn.
    const int before = count;
    if (is_quiet) {
      watched.tell_changes();
      count = ask_again(watched, events, count, room, ask_quiet);
    } else {
      watched.tell_all();
      count = ask_again(watched, events, count, room, ask);
    }
    if (is_due) watched.kernel_turn().note_asked();
    if (count == before) break;
    look.know({events, static_cast<size_t>(count)});
  }
  return look.put(events, count, room);
}

// What is ready in memory; with `may_sleep` it is awaited a little. Apart from its caller for its
// stack.
template <unsigned kItems, typename Wait>
[[gnu::noinline]] int look_in_memory(WatchedSet& watched, epoll_event* events, int room,
                                     bool may_sleep, Wait wait) {
  MemoryLook::Room<kItems> place;
  MemoryLook look(watched, place);
  if (look.find() || (may_sleep && look.spin() && look.find()))
    return report(watched, look, events, 0, room, wait);
  return 0;
}

// Adds that to `count` events of the kernel's.
template <unsigned kItems, typename Wait>
[[gnu::noinline]] int add_what_is_in_memory(WatchedSet& watched, epoll_event* events, int count,
                                            int room, Wait wait) {
  MemoryLook::Room<kItems> place;
  MemoryLook look(watched, place);
  return report(watched, look, events, count, room, wait);
}

// Streams in shared memory first, without a system call; the kernel when it may know of something
// that was ready before, now and then all the same, and when there is nothing.
template <typename Wait>
int wait_beside_memory(WatchedSet& watched, epoll_event* events, int room,
                       const PollDeadline& deadline, Wait wait) {
  for (;;) {
    const bool may_sleep = !deadline.is_over();
    const int found =
        MemoryLook::is_few(watched)
            ? look_in_memory<MemoryLook::kFew>(watched, events, room, may_sleep, wait)
            : look_in_memory<MemoryLook::kAll>(watched, events, room, may_sleep, wait);
    if (found > 0) {
      watched.look_turn().note(true);
      return found;
    }
    if (may_sleep && !settle(watched)) continue;
    watched.tell_all();
    if (may_sleep) ++base::effort.waits;
    int all = wait(events, room, deadline);
    if (all < 0) return all;
    all = without_bells(watched, events, all);
    if (all > 0) {
      watched.look_turn().note(false);
      return MemoryLook::is_few(watched)
                 ? add_what_is_in_memory<MemoryLook::kFew>(watched, events, all, room, wait)
                 : add_what_is_in_memory<MemoryLook::kAll>(watched, events, all, room, wait);
    }
    if (deadline.is_over()) return 0;
    if (!deadline.rest_after_vain_round()) return -1;
  }
}

// The kernel's answer, awaited a little without sleeping where that is worth it: who rings then
// wakes nobody. 0: there is none yet.
template <typename Wait>
int ask_a_while(epoll_event* events, int room, Wait wait) {
  int got = 0;
  const auto has_answer = [&] {
    got = wait(events, room, PollDeadline::after_ms(0));
    return got != 0;
  };
  base::Spin& mine = base::Spin::mine();
  const uint32_t cpu = mine.last_peer_cpu();
  if (mine.is_beside(cpu)) {
    if (!has_answer()) mine.by_yielding(has_answer);
  } else if (mine.is_worth(cpu, cpu)) {
    mine.until(has_answer);
  }
  return got;
}

// The kernel's order: whatever is in memory has a bell there. REQUIRES: settle() has said so.
template <typename Wait>
int wait_in_kernel(WatchedSet& watched, epoll_event* events, int room, const PollDeadline& deadline,
                   Wait wait) {
  constexpr int kMostStale = 8;
  watched.tell_all();
  for (int stale = 0;; ++stale) {
    int got = watched.members().streams().is_too_small() && !deadline.is_over()
                  ? ask_a_while(events, room, wait)
                  : 0;
    if (got == 0) {
      ++base::effort.waits;
      got = wait(events, room, deadline);
    }
    if (got <= 0) return got;
    int all = without_bells(watched, events, got);
    if (all > 0 && all < got)
      all = ask_again(watched, events, all, room, [=](epoll_event* at, int space) {
        return wait(at, space, PollDeadline::after_ms(0));
      });
    // Where it was only for bells the kernel is asked again in any case: it forgets then that
    // these were ready, and who is so next gets its place behind the others.
    if (all > 0 || (deadline.is_over() && stale == kMostStale)) return all;
    if (!deadline.rest_after_vain_round()) return -1;
  }
}

// Of the streams of a large set few are looked at.
bool is_look_vain(WatchedSet& watched) {
  return watched.members().streams().is_too_small() && !watched.look_turn().is_due();
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
  WatchedSet* watched =
      room > 0 && is_sound(events, sizeof *events) ? find_watched_set(set) : nullptr;
  std::optional<SetWait> inside;
  if (watched != nullptr) inside.emplace(*watched, set);
  if (!inside || !inside->is_of_set()) {
    inside.reset();
    settle_elsewhere(nullptr);
    tell_kernel();
    return corrected(events, room, deadline);
  }
  // Where a bell lay, and bytes have come since, the kernel may have told of its edge: who waits
  // for one hears of them by a look.
  const bool is_kernels = !watched->look_turn().take_left() &&
                          (watched->members().is_for_kernel(room) || is_look_vain(*watched));
  return is_kernels && settle(*watched)
             ? wait_in_kernel(*watched, events, room, deadline, corrected)
             : wait_beside_memory(*watched, events, room, deadline, corrected);
}

// An edge that is swallowed would not come again.
bool may_withdraw(uint32_t events) {
  return (events & (kReadable | kWritable)) != 0 && (events & (EPOLLET | EPOLLONESHOT)) == 0;
}

bool has_room(const epoll_event* events, int room) {
  return room <= 0 || is_sound_array(events, static_cast<size_t>(room));
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

// What a set may become of use for is known from its making; of its members nothing while there is
// no socket of ours.
static int change_early(int set, int operation, int fd, epoll_event* event) {
  const int result = real.epoll_ctl(set, operation, fd, event);
  if (result == 0) share_set(fd);
  return result;
}

// In each process, and known to those that it forks.
static constinit std::atomic<bool> are_edges_noted{false};

static void note_edges() {
  engine::user_stream_engine().note_edges();
  are_edges_noted.store(true, std::memory_order_release);
}

// Whatever is watched may become a stream. A set that is only made, to see whether that works,
// tells nobody of an edge (Python's selectors do that whenever they are imported).
int own_epoll_ctl(int set, int operation, int fd, epoll_event* event) {
  if (!are_edges_noted.load(std::memory_order_acquire) && operation != EPOLL_CTL_DEL) note_edges();
  if (!is_any_ours()) return change_early(set, operation, fd, event);
  const epoll_event* const sound = is_sound(event, sizeof *event) ? event : nullptr;
  std::optional<SetChange> change;
  const bool may_begin = operation != EPOLL_CTL_DEL && is_ours(fd);
  if (is_any_set_watched() || (may_begin && may_watch(set, fd)))
    change.emplace(set, operation, fd, sound);
  const bool is_deferred = change && change->defer();
  std::optional<MemberChange> member;
  if (is_any_watched()) member.emplace(set);
  const int result = is_deferred ? 0 : real.epoll_ctl(set, operation, fd, event);
  if (result != 0) return result;
  if (is_any_watched() && operation != EPOLL_CTL_DEL) note_member(set, fd, event->data);
  if (is_deferred) return result;
  if (change) {
    change->note();
  } else if (is_any_set_watched()) {  // it is since
    SetChange::note_late(set, operation, fd, sound);
  }
  if (!is_ours(fd)) {
    share_set(fd);  // if it is a set: who holds it relies on the kernel
    return result;
  }
  if (operation != EPOLL_CTL_DEL && needs_watch(fd, may_withdraw(event->events))) {
    set_watch(set, fd, *event);
  } else if (is_any_watched()) {
    forget_watch(set, fd);
  }
  return result;
}

int own_epoll_wait(int set, epoll_event* events, int room, int timeout_ms) {
  if (!is_any_ours()) [[likely]]
    return real.epoll_wait(set, events, room, timeout_ms);
  if (is_kernels_alone() || !has_room(events, room))
    return base::woken(real.epoll_wait(set, events, room, timeout_ms), timeout_ms != 0);
  return wait_on(set, events, room, PollDeadline::after_ms(timeout_ms),
                 [=](epoll_event* at, int space, const PollDeadline& deadline) {
                   const int left = deadline.left_ms();
                   return base::woken(real.epoll_wait(set, at, space, left), left != 0);
                 });
}

int own_epoll_pwait(int set, epoll_event* events, int room, int timeout_ms, const sigset_t* mask) {
  if (!is_any_ours()) [[likely]]
    return real.epoll_pwait(set, events, room, timeout_ms, mask);
  if (is_kernels_alone() || !has_room(events, room))
    return base::woken(real.epoll_pwait(set, events, room, timeout_ms, mask), timeout_ms != 0);
  return wait_on(set, events, room, PollDeadline::after_ms(timeout_ms, mask),
                 [=](epoll_event* at, int space, const PollDeadline& deadline) {
                   const int left = deadline.left_ms();
                   return base::woken(real.epoll_pwait(set, at, space, left, mask), left != 0);
                 });
}

int own_epoll_pwait2(int set, epoll_event* events, int room, const timespec* timeout,
                     const sigset_t* mask) {
  if (!is_any_ours() || !has_room(events, room) || !is_timeout(timeout)) [[likely]]
    return real.epoll_pwait2(set, events, room, timeout, mask);
  const auto wait = [=](epoll_event* at, int space, const timespec* left) {
    const bool may_sleep = left == nullptr || left->tv_sec != 0 || left->tv_nsec != 0;
    return base::woken(real.epoll_pwait2(set, at, space, left, mask), may_sleep);
  };
  if (is_kernels_alone()) return wait(events, room, timeout);
  return wait_on(set, events, room, PollDeadline::after(timeout, mask),
                 [=](epoll_event* at, int space, const PollDeadline& deadline) {
                   timespec rest;
                   return wait(at, space, deadline.left(rest));
                 });
}

}  // namespace ddpsock::shim
