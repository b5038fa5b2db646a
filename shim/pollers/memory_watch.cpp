// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/memory_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <new>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/keep_errno.h"
#include "base/process.h"
#include "base/spin.h"
#include "shim/fd_table.h"
#include "shim/pollers/epoll_watch.h"
#include "shim/program_memory.h"
#include "shim/real.h"

namespace ddpsock::shim {

constinit std::atomic<unsigned> watched_sets{0};
thread_local constinit WatchedSet* WatchedSet::lying_in_{nullptr};
constinit std::atomic<unsigned> WatchedSet::deferred{0};
constinit std::atomic<uint32_t> WatchedSet::generation_{0};
constinit std::array<std::atomic<uint64_t>, WatchedSet::kMostNumbers / 64> WatchedSet::own_{};

namespace {

constexpr unsigned kMostSets = 16;
// Who changes a set waits so long for another thread that does.
constexpr int kLooks = 200;  // without sleeping
constexpr Duration kPatience = Duration::from_ms(1000);
constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;
alignas(WatchedSet) constinit std::array<WatchedSet, kMostSets> sets{};
constinit std::atomic<unsigned> sets_end{0};  // places from here on were never used

// Nobody tells us that a set was closed. Where there is no /proc, whatever is open may be one.
bool may_be_epoll_set(int fd) {
  char path[32], name[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int saved_errno = errno;
  const ssize_t n = readlink(path, name, sizeof name);
  const bool is_open = n > 0 || real.fcntl(fd, F_GETFD) >= 0;
  errno = saved_errno;
  return n > 0 ? std::string_view(name, static_cast<size_t>(n)) == "anon_inode:[eventpoll]"
               : is_open;
}

constexpr bool is_served(uint32_t events) {
  return (events & (EPOLLONESHOT | EPOLLEXCLUSIVE)) == 0;
}

// Will the kernel find it? What a caller has just put on its stack is not asked about.
bool is_there(const epoll_event* event) {
  constexpr uintptr_t kNear = 1024;
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return reinterpret_cast<uintptr_t>(event) - frame < kNear || is_readable(event, sizeof *event);
}

}  // namespace

bool WatchedSet::may_serve(int set, int fd) {
  notice_fork();
  bool may = false;
  if (is_own(set))
    with_stream(fd, [&](engine::Stream& stream) { may = stream.glance().may_be_in_memory; });
  return may;
}

WatchedSet* WatchedSet::find(int set) {
  if (!is_any_set_watched()) return nullptr;
  notice_fork();
  const unsigned end = sets_end.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i)
    if (sets[i].set_.load(std::memory_order_acquire) == set + 1) return &sets[i];
  return nullptr;
}

// Is this the child of a fork that nobody announced? What its parent had put off is told by whoever
// of them comes first.
void WatchedSet::begin_in_child() {
  generation_.store(base::process_generation(), std::memory_order_relaxed);
  renew_leases();
  tell_kernel();
  in_child();
}

// Who has one is a thread of the parent's, or is inside the call that forked.
void WatchedSet::renew_leases() {
  for (WatchedSet& s : sets) new (&s.lease_) base::Lease;
}

void WatchedSet::note_created(int set) {
  static constinit std::atomic<bool> has_handlers{false};
  if (!has_handlers.exchange(true)) pthread_atfork(before_fork, nullptr, in_child);
  forget_set(set);  // before what was put off is told: not to the new one
  notice_fork();
  if (static_cast<unsigned>(set) < kMostNumbers) set_own(set, true);
}

void WatchedSet::set_own(int set, bool is_own) {
  std::atomic<uint64_t>& numbers = own_[static_cast<unsigned>(set) / 64];
  const uint64_t number = uint64_t{1} << (set % 64);
  is_own ? numbers.fetch_or(number, std::memory_order_relaxed)
         : numbers.fetch_and(~number, std::memory_order_relaxed);
}

void WatchedSet::forget_own(int set) {
  set_own(set, false);
  forget_set(set);
}

void WatchedSet::share_own(int set) {
  set_own(set, false);
  WatchedSet* s = find(set);
  if (s == nullptr) return;
  const Hold hold(*s);
  if (hold.is_held() && s->set_.load() == set + 1) s->share_all();
}

void WatchedSet::share_all() {
  must_share_.store(false);
  const int known = set_.load();
  if (known <= claimed(0)) set_.store(0);  // a handler has jumped out of the claim
  if (known <= 0) return;
  set_own(known - 1, false);
  each([this](Watch& w, int fd) { hand_over(w, fd); });
  forget_all();
}

void WatchedSet::tell_kernel_all() {
  for (WatchedSet& s : sets) s.tell_all();
}

// A child that changes or waits in a set of ours finds it as this process has asked for.
void WatchedSet::before_fork() {
  if (is_any_set_watched())
    for (WatchedSet& s : sets) {
      s.has_forked_.store(true);
      if (s.set_.load() > 0) const Hold nobody_is_at_it(s);
    }
  tell_kernel();
}

// To the child the sets are somebody else's too.
void WatchedSet::in_child() {
  generation_.store(base::process_generation(), std::memory_order_relaxed);
  for (std::atomic<uint64_t>& numbers : own_)
    if (numbers.load(std::memory_order_relaxed) != 0) numbers.store(0, std::memory_order_relaxed);
  MemberChange::in_child();
  renew_leases();
  for (WatchedSet& s : sets) {
    s.inside_.store(0, std::memory_order_relaxed);
    const int set = s.set_.load(std::memory_order_relaxed);
    if (set <= claimed(0)) s.set_.store(0, std::memory_order_relaxed);
    if (set > 0) s.forget_all();
    s.free_if_left();
  }
}

// nullptr: there is no room, or another thread is at it. What the set holds is asked when all who
// change it from now on wait for that.
WatchedSet* WatchedSet::claim(int set, std::optional<Hold>& hold) {
  for (bool has_swept = false;; has_swept = true) {
    for (WatchedSet& s : sets) {
      int free = 0;
      if (s.set_.load(std::memory_order_relaxed) != 0 ||
          !s.set_.compare_exchange_strong(free, claimed(set)))
        continue;
      if (!s.is_claimed_elsewhere(set)) hold.emplace(s);
      if (!hold || !hold->is_held() || s.set_.load() != claimed(set)) {
        hold.reset();
        int mine = claimed(set);
        s.set_.compare_exchange_strong(mine, 0);
        return nullptr;
      }
      // A child that was forked inside a change may have left something.
      for (Watch& w : s.watches_) w.free();
      s.end_.store(0, std::memory_order_relaxed);
      s.must_share_.store(false);
      s.has_forked_.store(false, std::memory_order_relaxed);
      s.quiet_after_.store(0, std::memory_order_relaxed);
      // Whoever takes it back has been counted.
      watched_sets.fetch_add(1, std::memory_order_acq_rel);
      const auto end = static_cast<unsigned>(&s - sets.data()) + 1;
      for (unsigned seen = sets_end; seen < end && !sets_end.compare_exchange_weak(seen, end);)
        continue;
      s.set_.store(set + 1);
      s.others_.learn(set);
      if (is_own(set)) return &s;
      s.forget_all();  // somebody else has it since
      hold.reset();
      return nullptr;
    }
    if (has_swept) return nullptr;
    for (const WatchedSet& s : sets)
      if (const int other = s.set_.load(std::memory_order_acquire) - 1;
          other >= 0 && !may_be_epoll_set(other))
        forget_set(other);
  }
}

// Of threads that claim one at once the first in the row has it.
bool WatchedSet::is_claimed_elsewhere(int set) const {
  for (const WatchedSet& s : sets) {
    const int other = s.set_.load();
    if (&s != this && (other == set + 1 || (other == claimed(set) && &s < this))) return true;
  }
  return false;
}

WatchedSet::Watch* WatchedSet::find_fd(int fd) {
  Watch* found = nullptr;
  each([&](Watch& w, int watched) {
    if (watched == fd) found = &w;
  });
  return found;
}

// nullptr: all are taken.
WatchedSet::Watch* WatchedSet::take_place() {
  for (unsigned i = 0; i < kMost; ++i) {
    if (watches_[i].fd.load(std::memory_order_relaxed) != 0) continue;
    if (end_.load(std::memory_order_relaxed) <= i) end_.store(i + 1, std::memory_order_release);
    return &watches_[i];
  }
  return nullptr;
}

void WatchedSet::Watch::free() {
  version.fetch_add(1);
  fd.store(0, std::memory_order_release);
}

// A program that gives two descriptors the same data cannot be told which of them has bytes.
bool WatchedSet::has_other_with(uint64_t data, int fd) {
  bool has = others_.has_data(data);
  each([&](Watch& w, int watched) {
    has |= watched != fd && w.is_wanted.load(std::memory_order_relaxed) &&
           w.data.load(std::memory_order_relaxed) == data;
  });
  return has;
}

void WatchedSet::watch(int fd, const epoll_event& event) {
  others_.remove(fd);
  if (has_other_with(event.data.u64, fd)) return leave_to_kernel(fd, event);
  Watch* w = find_fd(fd);
  const bool is_new = w == nullptr;
  if (is_new && (w = take_place()) == nullptr) return leave_to_kernel(fd, event);
  w->events.store(event.events, std::memory_order_relaxed);
  w->data.store(event.data.u64, std::memory_order_release);
  w->is_wanted.store(true, std::memory_order_relaxed);
  w->is_in_kernel.store(true, std::memory_order_relaxed);
  w->kernel_events.store(event.events, std::memory_order_relaxed);
  w->kernel_data.store(event.data.u64, std::memory_order_relaxed);
  w->reported.store(0, std::memory_order_relaxed);
  w->is_hushed.store(false, std::memory_order_relaxed);
  if (is_new) {
    w->seen.store(~uint64_t{0}, std::memory_order_relaxed);
    w->has_lazy_bell.store(false, std::memory_order_relaxed);
    w->has_order.store(false, std::memory_order_relaxed);
  }
  w->fd.store(fd + 1, std::memory_order_release);
  if (end_.load(std::memory_order_relaxed) < 2) return;
  w->want_order(fd);
  // The first was alone until the second came.
  const int first = watches_[0].fd.load(std::memory_order_acquire) - 1;
  if (w == &watches_[1] && first >= 0) watches_[0].want_order(first);
}

// Who has accepted it watches it before it reads, which is when it comes to lie in memory.
void WatchedSet::Watch::want_order(int number) {
  if (has_order.load(std::memory_order_relaxed)) return;
  with_stream(number, [this](engine::Stream& stream) {
    if (stream.want_order()) has_order.store(true, std::memory_order_relaxed);
  });
}

void WatchedSet::leave_to_kernel(int fd, const epoll_event& event) {
  if (Watch* w = find_fd(fd); w != nullptr) give_up(*w, fd);
  others_.add(fd, event);
  hand_over_with(event.data.u64);
}

// Whoever watches it from now on relies on the kernel. A thread that is reporting it sees that it
// is gone when it has let its bells lie, or does so before that is taken back.
void WatchedSet::give_up(Watch& w, int fd) {
  tell(w, fd);
  w.free();
  with_stream(fd, [&](engine::Stream& stream) {
    stream.set_watcher(0);
    stream.settle(fd);
  });
}

// The same where the kernel knows it already, and goes on to.
void WatchedSet::hand_over(Watch& w, int fd) {
  epoll_event event{};
  event.events = w.events.load(std::memory_order_relaxed);
  event.data.u64 = w.data.load(std::memory_order_relaxed);
  const bool is_wanted = w.is_wanted.load(std::memory_order_relaxed);
  give_up(w, fd);
  if (is_wanted) others_.add(fd, event);
}

// What another member may be reported by.
void WatchedSet::hand_over_with(uint64_t data) {
  each([=, this](Watch& w, int fd) {
    if (w.data.load(std::memory_order_relaxed) == data) hand_over(w, fd);
  });
}

void WatchedSet::hand_over_seen(Watch& w, int fd, uint32_t version) {
  const Hold hold(*this);
  if (hold.is_held() && w.is(fd, version)) hand_over(w, fd);
}

// A bell that lies unread stays so until the next settle(): all that can come of it is that a
// poller of another kind finds the socket readable for nothing, once.
void WatchedSet::unwatch(int fd) {
  others_.remove(fd);
  Watch* w = find_fd(fd);
  if (w == nullptr) return;
  w->is_wanted.store(false, std::memory_order_relaxed);
  w->is_in_kernel.store(false, std::memory_order_relaxed);
  // Who reports it sees that, or is seen.
  w->version.fetch_add(1);
  if (!w->has_lazy_bell.load()) w->free();
}

// It may have been added again since: then nobody knows here what the kernel heard last.
void WatchedSet::unwatch_late(int fd) {
  if (!OtherMembers::is_listed(set_.load(std::memory_order_relaxed) - 1, fd)) return unwatch(fd);
  if (Watch* w = find_fd(fd); w != nullptr) hand_over(*w, fd);
}

bool WatchedSet::defer(int operation, int fd, const epoll_event* event) {
  Watch* w = find_fd(fd);
  if (w == nullptr) return false;
  const bool is_wanted = w->is_wanted.load(std::memory_order_relaxed);
  const bool is_usual = !has_forked_.load(std::memory_order_relaxed) &&
                        w->has_lazy_bell.load(std::memory_order_relaxed) &&
                        waiter_.load(std::memory_order_relaxed) == base::thread_id() &&
                        is_wanted == (operation != EPOLL_CTL_ADD);
  constexpr uint32_t kServed = kReadable | kWritable | EPOLLRDHUP;
  const bool is_simple = operation == EPOLL_CTL_DEL ||
                         ((event->events & ~kServed) == 0 && !has_other_with(event->data.u64, fd));
  const bool is_edge = (w->events.load(std::memory_order_relaxed) & EPOLLET) != 0;
  if (!is_usual || !is_simple || is_edge) {
    // The kernel answers, and must know what came before.
    tell(*w, fd);
    return false;
  }
  w->is_wanted.store(operation != EPOLL_CTL_DEL, std::memory_order_relaxed);
  if (operation != EPOLL_CTL_DEL) {
    w->events.store(event->events, std::memory_order_relaxed);
    w->data.store(event->data.u64, std::memory_order_release);
  }
  is_kernel_behind_.store(true, std::memory_order_relaxed);
  if (is_deferring_.load(std::memory_order_relaxed)) return true;
  deferred.fetch_add(1);
  is_deferring_.store(true);
  // Either a thread that goes to wait sees that, and waits for this change, or it is seen here.
  if (inside_.load() > 0) tell_all_now();
  return true;
}

WatchedSet::Hold::Hold(WatchedSet& set)
    : Unfinished(abandon), set_(set), was_mine_(set.lease_.is_mine()) {
  begin();
  using Outcome = base::Lease::Outcome;
  Outcome got = set.lease_.try_acquire();
  for (int look = 0; got == Outcome::kBusy && look < kLooks; ++look) {
    base::Spin::relax();
    if (!set.lease_.is_held()) got = set.lease_.try_acquire();
  }
  if (got == Outcome::kBusy && !set.must_share_.load()) {
    const base::KeepErrno keep;
    const Time give_up = base::now() + kPatience;
    do {
      got = set.lease_.acquire(give_up);
    } while (got == Outcome::kInterrupted);
  }
  if (got == Outcome::kBusy || got == Outcome::kHeldByMe) {
    set.must_share_.store(true);
    got = set.lease_.try_acquire();  // who has just released it may not have seen that
  } else if (got == Outcome::kInherited) {
    set.must_share_.store(true);
  }
  is_held_ = got == Outcome::kAcquired || got == Outcome::kInherited;
}

void WatchedSet::Hold::abandon(base::Unfinished& unfinished) {
  auto& hold = static_cast<Hold&>(unfinished);
  if (hold.was_mine_ || !hold.set_.lease_.is_mine()) return;
  hold.set_.must_share_.store(true);
  hold.is_held_ = true;
  hold.end();
}

// In a child that a signal handler forked inside the call it is nobody's.
void WatchedSet::Hold::end() {
  while (is_held_ && set_.lease_.is_mine()) {
    if (set_.must_share_.load()) [[unlikely]]
      set_.share_all();
    set_.lease_.release();
    is_held_ =
        set_.must_share_.load() && set_.lease_.try_acquire() == base::Lease::Outcome::kAcquired;
  }
  is_held_ = false;
}

WatchedSet::Change::Change(int set, int operation, int fd, const epoll_event* event)
    : number_(set), operation_(operation), fd_(fd), event_(event), set_(find(set)) {
  if (set_ != nullptr) {
    hold_.emplace(*set_);
  } else if (operation != EPOLL_CTL_DEL && event != nullptr && may_serve(set, fd) &&
             is_there(event) && is_served(event->events)) {
    set_ = claim(set, hold_);
  }
  if (!hold_) return;
  const bool is_held = hold_->is_held();
  if (is_held && set_->set_.load(std::memory_order_relaxed) == number_ + 1) {
    set_->changing_.store(fd + 1);
    return;
  }
  // What was put off of this member comes first, for who is refused too.
  Watch* const w = is_held ? nullptr : set_->find_fd(fd);
  if (w != nullptr) set_->tell(*w, fd);
  if (is_held) set_ = nullptr;  // forgotten meanwhile
  hold_.reset();
}

bool WatchedSet::Change::defer_held() {
  return (operation_ == EPOLL_CTL_DEL || event_ != nullptr) && set_->defer(operation_, fd_, event_);
}

void WatchedSet::Change::note() {
  const bool is_in_order = hold_.has_value();
  // Refused; or, where it was not watched, it may be since.
  if (!is_in_order && (set_ != nullptr || (set_ = find(number_)) == nullptr)) return;
  if (!is_in_order) hold_.emplace(*set_);
  if (!hold_->is_held() || set_->set_.load(std::memory_order_relaxed) != number_ + 1) return;
  if (operation_ == EPOLL_CTL_DEL) {
    is_in_order ? set_->unwatch(fd_) : set_->unwatch_late(fd_);
  } else if (event_ != nullptr && is_in_order && is_served(event_->events) &&
             may_serve(number_, fd_)) {
    set_->watch(fd_, *event_);
  } else if (event_ != nullptr) {
    // Where others may have changed it meanwhile, nobody knows which the kernel heard last.
    set_->leave_to_kernel(fd_, *event_);
  }
  hold_.reset();
}

void WatchedSet::Change::note_late(int set, int operation, int fd, const epoll_event* event) {
  Change(Late{}, set, operation, fd, event).note();
}

WatchedSet::Inside::Inside(WatchedSet& watched, int set)
    : Unfinished([](base::Unfinished& inside) { static_cast<Inside&>(inside).end(); }),
      set_(watched),
      generation_(base::process_generation()) {
  begin();
  set_.inside_.fetch_add(1);
  is_of_set_ = set_.set_.load() == set + 1;
  if (!is_of_set_) return;
  settle_elsewhere(&set_);
  const uint32_t me = base::thread_id();
  if (set_.waiter_.load() != me && set_.waiter_.exchange(me) != me) set_.tell_all();
}

// In a child that a signal handler forked meanwhile nobody is counted.
void WatchedSet::Inside::end() {
  if (base::process_generation() != generation_) return;
  if (set_.inside_.fetch_sub(1) == 1 && set_.set_.load() == kLeft) set_.free_if_left();
}

// Of a member that is being added somebody may have been told already, who closes it now. Who adds
// it later finds that the number is no stream's any more: it was taken out of the table before
// this.
void WatchedSet::forget_fd(int fd, bool is_still_watched) {
  if (!is_any_set_watched()) return;
  for (WatchedSet& s : std::span(sets).first(sets_end.load(std::memory_order_acquire))) {
    if (s.set_.load(std::memory_order_acquire) <= 0) continue;
    const bool is_changing = s.changing_.load() == fd + 1 && s.lease_.is_held();
    if (!is_changing && s.find_fd(fd) == nullptr) {
      s.others_.remove(fd);
      continue;
    }
    const Hold hold(s);
    s.others_.remove(fd);
    Watch* w = s.find_fd(fd);
    if (w == nullptr) continue;
    if (is_still_watched) s.tell(*w, fd);
    w->free();  // who is refused too: the number may be another's soon
  }
}

// What is refused the hold forgets all the same: the number is another's.
void WatchedSet::forget_set(int set) {
  WatchedSet* s = find(set);
  if (s == nullptr) return;
  const Hold hold(*s);
  if (s->set_.load() == set + 1) s->forget_all();
}

void WatchedSet::forget_all() {
  if (is_deferring_.exchange(false)) deferred.fetch_sub(1);
  is_quiet_.store(false);
  is_kernel_behind_.store(false);
  questions_.store(0, std::memory_order_relaxed);
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i) watches_[i].free();
  end_.store(0, std::memory_order_relaxed);
  set_.store(kLeft);
  free_if_left();
}

// Whoever waits in it finds nothing to look at, and must not find another set here.
void WatchedSet::free_if_left() {
  int left = kLeft;
  if (inside_.load() <= 0 && set_.compare_exchange_strong(left, 0))
    watched_sets.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace ddpsock::shim
