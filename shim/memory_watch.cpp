// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/memory_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/process.h"
#include "shim/epoll_watch.h"
#include "shim/fd_table.h"
#include "shim/real.h"

namespace ddpsock::shim {

constinit std::atomic<unsigned> watched_sets{0};
constinit std::atomic<unsigned> WatchedSet::deferred{0};
constinit std::atomic<uint32_t> WatchedSet::generation_{0};
constinit std::array<std::atomic<uint64_t>, WatchedSet::kMostNumbers / 64> WatchedSet::own_{};
constinit std::array<std::atomic<uint64_t>, WatchedSet::kMostNumbers / 64> WatchedSet::claiming_{};

namespace {

constexpr unsigned kMostSets = 16;
// While there are bytes in memory, descriptors of other kinds are looked after this often; less if
// that takes long, so that it never takes more than a part of the time.
constexpr Duration kKernelEvery = Duration::from_us(100),
                   kKernelAtLeastEvery = Duration::from_ms(2);
constexpr int64_t kKernelPart = 16;
// A bell may lie unread for so long without bytes.
constexpr Duration kMostStale = Duration::from_ms(1);
// Programs that take so few events at a time may care which they get.
constexpr int kLittleRoom = 8;
// To make the kernel quiet about a stream, and to take that back, costs as much as some questions.
constexpr uint32_t kQuietAfter = 8, kWorthIt = 16, kMostQuietAfter = 1024;
// Something that was ready will be so again within this.
constexpr Duration kBusy = Duration::from_ms(100);
constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;
constexpr uint32_t kEnded = EPOLLERR | EPOLLHUP | EPOLLRDHUP;

// What the kernel is asked for of a stream that it is to be quiet about: an end it still reports.
constexpr uint32_t hushed(uint32_t events) {
  return (events & (EPOLLET | kWritable)) != 0 ? events : (events & ~kReadable) | EPOLLRDHUP;
}

alignas(WatchedSet) constinit std::array<WatchedSet, kMostSets> sets{};

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

bool is_all_in_memory(const engine::Glance& glance) {
  return glance.is_in_memory && !glance.is_wire_in_use && !glance.may_have_ended;
}

// Runs `f(Stream&)` if `fd` is a stream in DDPMODE.
template <typename F>
void with_stream(int fd, F f) {
  if (socket_at(fd) == nullptr) return;
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase())) return;
  engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  if (stream.is_behind(fd)) f(stream);
}

}  // namespace

template <typename F>
void WatchedSet::each(F visit) {
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i)
    if (const int fd = watches_[i].fd.load(std::memory_order_acquire) - 1; fd >= 0)
      visit(watches_[i], fd);
}

WatchedSet* WatchedSet::find(int set) {
  if (!is_any_set_watched()) return nullptr;
  notice_fork();
  for (WatchedSet& s : sets)
    if (s.set_.load(std::memory_order_acquire) == set + 1) return &s;
  return nullptr;
}

// Is this the child of a fork that nobody announced? What its parent had put off is told by whoever
// of them comes first.
void WatchedSet::notice_fork() {
  const uint32_t now = base::process_generation();
  if (generation_.load(std::memory_order_relaxed) == now) [[likely]]
    return;
  generation_.store(now, std::memory_order_relaxed);
  tell_kernel();
  in_child();
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
  s->each([s](Watch& w, int fd) { s->hand_over(w, fd); });
  forget_set(set);
}

// A child that changes or waits in a set of ours finds it as this process has asked for.
void WatchedSet::before_fork() {
  if (is_any_set_watched())
    for (WatchedSet& s : sets) s.has_forked_.store(true);
  tell_kernel();
}

// To the child the sets are somebody else's too.
void WatchedSet::in_child() {
  generation_.store(base::process_generation(), std::memory_order_relaxed);
  for (std::atomic<uint64_t>& numbers : own_)
    if (numbers.load(std::memory_order_relaxed) != 0) numbers.store(0, std::memory_order_relaxed);
  for (std::atomic<uint64_t>& numbers : claiming_)
    if (numbers.load(std::memory_order_relaxed) != 0) numbers.store(0, std::memory_order_relaxed);
  MemberChange::in_child();
  for (WatchedSet& s : sets) {
    s.inside_.store(0, std::memory_order_relaxed);
    if (const int set = s.set_.load(std::memory_order_relaxed) - 1; set >= 0) forget_set(set);
    s.free_if_left();
  }
}

// nullptr: there is no room, or another thread is at it, which finds in the set what is added now.
WatchedSet* WatchedSet::claim(int set) {
  std::atomic<uint64_t>& numbers = claiming_[static_cast<unsigned>(set) / 64];
  const uint64_t number = uint64_t{1} << (set % 64);
  if ((numbers.fetch_or(number) & number) != 0) return nullptr;
  WatchedSet* s = find(set);
  if (s == nullptr) s = take_set(set);
  numbers.fetch_and(~number);
  return s;
}

WatchedSet* WatchedSet::take_set(int set) {
  for (bool has_swept = false;; has_swept = true) {
    for (WatchedSet& s : sets) {
      int free = 0;
      if (!s.set_.compare_exchange_strong(free, set + 1)) continue;
      s.others_.learn(set);
      s.has_forked_.store(false, std::memory_order_relaxed);
      s.inside_.store(0, std::memory_order_relaxed);
      s.quiet_after_.store(0, std::memory_order_relaxed);
      watched_sets.fetch_add(1, std::memory_order_acq_rel);
      return &s;
    }
    if (has_swept) return nullptr;
    for (const WatchedSet& s : sets)
      if (const int other = s.set_.load(std::memory_order_acquire) - 1;
          other >= 0 && !may_be_epoll_set(other))
        forget_set(other);
  }
}

WatchedSet::Watch* WatchedSet::find_fd(int fd) {
  Watch* found = nullptr;
  each([&](Watch& w, int watched) {
    if (watched == fd) found = &w;
  });
  return found;
}

// Threads that add members at once get a place each. nullptr: all are taken.
WatchedSet::Watch* WatchedSet::take_place() {
  for (unsigned i = 0; i < kMost; ++i) {
    if (!watches_[i].change_fd(0, kTaken)) continue;
    unsigned end = end_.load(std::memory_order_relaxed);
    while (end <= i && !end_.compare_exchange_weak(end, i + 1)) {
    }
    return &watches_[i];
  }
  return nullptr;
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

void WatchedSet::watch(int set, int fd, const epoll_event& event) {
  const bool is_served = (event.events & (EPOLLONESHOT | EPOLLEXCLUSIVE)) == 0;
  bool may_be_in_memory = false;
  notice_fork();
  with_stream(fd,
              [&](engine::Stream& stream) { may_be_in_memory = stream.glance().may_be_in_memory; });
  if (!is_served || !may_be_in_memory || !is_own(set)) return leave_to_kernel(set, fd, event);
  WatchedSet* s = find(set);
  if (s == nullptr && (s = claim(set)) == nullptr) return;
  s->others_.remove(fd);
  if (s->has_other_with(event.data.u64, fd)) return leave_to_kernel(set, fd, event);
  Watch* w = s->find_fd(fd);
  // Another thread may be about to free it.
  const bool is_new = w == nullptr || !w->change_fd(fd + 1, kTaken);
  if (is_new && (w = s->take_place()) == nullptr) return leave_to_kernel(set, fd, event);
  w->events.store(event.events, std::memory_order_relaxed);
  w->data.store(event.data.u64, std::memory_order_relaxed);
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
  if (s->end_.load(std::memory_order_relaxed) < 2) return;
  w->want_order(fd);
  // The first was alone until the second came.
  const int first = s->watches_[0].fd.load(std::memory_order_acquire) - 1;
  if (w == &s->watches_[1] && first >= 0) s->watches_[0].want_order(first);
}

// Who has accepted it watches it before it reads, which is when it comes to lie in memory.
void WatchedSet::Watch::want_order(int number) {
  if (has_order.load(std::memory_order_relaxed)) return;
  with_stream(number, [this](engine::Stream& stream) {
    if (stream.want_order()) has_order.store(true, std::memory_order_relaxed);
  });
}

void WatchedSet::leave_to_kernel(int set, int fd, const epoll_event& event) {
  WatchedSet* s = find(set);
  if (s == nullptr) return;
  if (Watch* w = s->find_fd(fd); w != nullptr) s->give_up(*w, fd);
  s->others_.add(fd, event);
  s->hand_over_with(event.data.u64);
}

// Whoever watches it from now on relies on the kernel.
void WatchedSet::give_up(Watch& w, int fd) {
  tell(w, fd);
  with_stream(fd, [&](engine::Stream& stream) {
    stream.let_bells_lie(0);
    stream.settle(fd);
  });
  w.change_fd(fd + 1, 0);
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

void WatchedSet::note_other(int set, int operation, int fd, const epoll_event* event) {
  WatchedSet* s = find(set);
  if (s == nullptr) return;
  if (operation == EPOLL_CTL_DEL) return s->others_.remove(fd);
  s->others_.add(fd, *event);
  s->hand_over_with(event->data.u64);
}

// What another member may be reported by.
void WatchedSet::hand_over_with(uint64_t data) {
  each([=, this](Watch& w, int fd) {
    if (w.data.load(std::memory_order_relaxed) == data) hand_over(w, fd);
  });
}

void WatchedSet::unwatch(int set, int fd) {
  WatchedSet* s = find(set);
  if (s != nullptr) s->others_.remove(fd);
  Watch* w = s != nullptr ? s->find_fd(fd) : nullptr;
  if (w == nullptr) return;
  s->drop(*w, fd);
}

void WatchedSet::drop(Watch& w, int fd) {
  w.is_wanted.store(false, std::memory_order_relaxed);
  w.is_in_kernel.store(false, std::memory_order_relaxed);
  if (!w.has_lazy_bell.load(std::memory_order_relaxed)) w.change_fd(fd + 1, 0);
}

bool WatchedSet::defer(int set, int operation, int fd, const epoll_event* event) {
  WatchedSet* s = find(set);
  Watch* w = s != nullptr ? s->find_fd(fd) : nullptr;
  if (w == nullptr) return false;
  const bool is_wanted = w->is_wanted.load(std::memory_order_relaxed);
  const bool is_usual = !s->has_forked_.load(std::memory_order_relaxed) &&
                        w->has_lazy_bell.load(std::memory_order_relaxed) &&
                        s->waiter_.load(std::memory_order_relaxed) == base::thread_id() &&
                        is_wanted == (operation != EPOLL_CTL_ADD);
  constexpr uint32_t kServed = kReadable | kWritable | EPOLLRDHUP;
  const bool is_simple = operation == EPOLL_CTL_DEL || ((event->events & ~kServed) == 0 &&
                                                        !s->has_other_with(event->data.u64, fd));
  const bool is_edge = (w->events.load(std::memory_order_relaxed) & EPOLLET) != 0;
  if (!is_usual || !is_simple || is_edge) {
    // The kernel answers, and must know what came before.
    s->tell(*w, fd);
    return false;
  }
  w->is_wanted.store(operation != EPOLL_CTL_DEL, std::memory_order_relaxed);
  if (operation != EPOLL_CTL_DEL) {
    w->events.store(event->events, std::memory_order_relaxed);
    w->data.store(event->data.u64, std::memory_order_relaxed);
  }
  s->is_kernel_behind_.store(true);
  if (!s->is_deferring_.exchange(true)) deferred.fetch_add(1);
  // Either a thread that goes to wait sees that, or it is seen here.
  if (s->inside_.load() > 0) s->tell_all();
  return true;
}

void WatchedSet::tell(Watch& w, int fd) {
  w.is_hushed.store(false);
  tell_but_hush(w, fd);
}

uint32_t WatchedSet::events_for_kernel(const Watch& w) {
  const uint32_t events = w.events.load(std::memory_order_relaxed);
  return w.is_hushed.load(std::memory_order_relaxed) ? hushed(events) : events;
}

void WatchedSet::tell_but_hush(Watch& w, int fd) {
  const uint32_t before = orders_of(fd).load(), deletions = deletions_of(fd).load();
  const bool is_wanted = w.is_wanted.load(std::memory_order_relaxed);
  const bool is_in_kernel = w.is_in_kernel.load(std::memory_order_relaxed);
  const bool is_same =
      w.kernel_events.load(std::memory_order_relaxed) == events_for_kernel(w) &&
      w.kernel_data.load(std::memory_order_relaxed) == w.data.load(std::memory_order_relaxed);
  if (is_wanted == is_in_kernel && (!is_wanted || is_same)) return;
  order(w, fd, !is_wanted ? EPOLL_CTL_DEL : is_in_kernel ? EPOLL_CTL_MOD : EPOLL_CTL_ADD);
  if (orders_of(fd).fetch_add(1) != before)
    order_again(w, fd, !is_wanted && deletions_of(fd).load() == deletions);
}

// Other calls have ended since that began, and the kernel may have heard of them before it or
// behind it. Of those that overlap the last to end finds the others counted, and tells the kernel
// what is then wanted. Anew only where it was ours that took out what was added meanwhile: else a
// member that the kernel does not know was deleted just now. Threads that take turns here find each
// other counted each time.
void WatchedSet::order_again(Watch& w, int fd, bool may_add) {
  constexpr int kMostTurns = 8;
  uint32_t before;
  int turns = 0;
  do {
    before = orders_of(fd).load();
    if (w.fd.load(std::memory_order_acquire) != fd + 1) return;
    const bool is_wanted = w.is_wanted.load(std::memory_order_relaxed);
    const int error = order(w, fd, is_wanted ? EPOLL_CTL_MOD : EPOLL_CTL_DEL);
    if (error == ENOENT && is_wanted) may_add ? void(order(w, fd, EPOLL_CTL_ADD)) : drop(w, fd);
  } while (orders_of(fd).fetch_add(1) != before && ++turns < kMostTurns);
}

// 0, or what is wrong.
int WatchedSet::order(Watch& w, int fd, int operation) {
  epoll_event event{};
  event.events = events_for_kernel(w);
  event.data.u64 = w.data.load(std::memory_order_relaxed);
  const int saved_errno = errno;
  const int set = set_.load(std::memory_order_relaxed) - 1;
  const int error = real.epoll_ctl(set, operation, fd, &event) == 0 ? 0 : errno;
  errno = saved_errno;
  w.is_in_kernel.store(operation != EPOLL_CTL_DEL, std::memory_order_relaxed);
  w.kernel_events.store(event.events, std::memory_order_relaxed);
  w.kernel_data.store(event.data.u64, std::memory_order_relaxed);
  return error;
}

void WatchedSet::tell_all() {
  if (!is_deferring_.load() || !is_deferring_.exchange(false)) return;
  deferred.fetch_sub(1);
  is_kernel_behind_.store(false);
  end_quiet();
  each([this](Watch& w, int fd) { tell(w, fd); });
}

bool WatchedSet::is_quiet_by_now() {
  const uint32_t asked = questions_.load(std::memory_order_relaxed) + 1;
  questions_.store(asked, std::memory_order_relaxed);
  if (is_quiet()) return true;
  if (asked <= quiet_after_.load(std::memory_order_relaxed) + kQuietAfter) return false;
  questions_.store(0, std::memory_order_relaxed);
  if (!is_alone_inside()) return false;
  is_quiet_.store(true);
  if (!is_deferring_.exchange(true)) deferred.fetch_add(1);
  return true;
}

// Where it was not worth it, later the next time.
void WatchedSet::end_quiet() {
  const uint32_t asked = questions_.exchange(0, std::memory_order_relaxed);
  if (!is_quiet_.exchange(false)) return;
  const uint32_t after = quiet_after_.load(std::memory_order_relaxed);
  quiet_after_.store(
      asked < kWorthIt ? std::min(2 * after + kQuietAfter, kMostQuietAfter) : after / 2,
      std::memory_order_relaxed);
}

// Either whoever goes to wait, or forks, sees that, or is seen here.
void WatchedSet::hush(Watch& w, int fd) {
  const uint32_t events = w.events.load(std::memory_order_relaxed);
  if (hushed(events) == events) return end_quiet();  // it would be reported each time
  w.is_hushed.store(true);
  tell_but_hush(w, fd);
  if (!is_alone_inside() || !is_deferring_.load()) tell(w, fd);
}

void WatchedSet::tell_changes() {
  if (is_kernel_behind_.load(std::memory_order_relaxed) && is_kernel_behind_.exchange(false))
    each([this](Watch& w, int fd) { tell_but_hush(w, fd); });
}

int WatchedSet::ask(epoll_event* answer, int room) const {
  return real.epoll_wait(set_.load(std::memory_order_relaxed) - 1, answer, room, 0);
}

void WatchedSet::tell_kernel_all() {
  for (WatchedSet& s : sets) s.tell_all();
}

WatchedSet::CtlCall::CtlCall(WatchedSet* set, int operation, int fd)
    : set_(set),
      operation_(operation),
      fd_(fd),
      before_(set != nullptr ? set->orders_of(fd).load() : 0),
      deletions_(set != nullptr ? set->deletions_of(fd).load() : 0) {
  if (set != nullptr && operation == EPOLL_CTL_DEL) set->deletions_of(fd).fetch_add(1);
}

bool WatchedSet::CtlCall::may_be_deleted() const {
  return set_ != nullptr && set_->deletions_of(fd_).load() != deletions_;
}

WatchedSet::CtlCall::~CtlCall() {
  if (set_ == nullptr || set_->orders_of(fd_).fetch_add(1) == before_) return;
  if (Watch* w = set_->find_fd(fd_); w != nullptr)
    set_->order_again(*w, fd_, operation_ != EPOLL_CTL_DEL && !may_be_deleted());
}

WatchedSet::Inside::Inside(WatchedSet& set) : set_(set) {
  set.inside_.fetch_add(1);
  const uint32_t me = base::thread_id();
  if (set.waiter_.load() != me && set.waiter_.exchange(me) != me) set.tell_all();
}

void WatchedSet::forget_fd(int fd, bool is_still_watched) {
  if (!is_any_set_watched()) return;
  for (WatchedSet& s : sets) {
    if (s.set_.load(std::memory_order_acquire) <= 0) continue;
    s.each([&](Watch& w, int watched) {
      if (watched != fd) return;
      if (is_still_watched) s.tell(w, fd);
      w.change_fd(fd + 1, 0);
    });
    s.others_.remove(fd);
  }
}

void WatchedSet::forget_set(int set) {
  WatchedSet* s = find(set);
  if (s == nullptr) return;
  if (s->is_deferring_.exchange(false)) deferred.fetch_sub(1);
  s->is_quiet_.store(false);
  s->is_kernel_behind_.store(false);
  s->questions_.store(0, std::memory_order_relaxed);
  const unsigned end = s->end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i) s->watches_[i].fd.store(0, std::memory_order_release);
  s->end_.store(0, std::memory_order_relaxed);
  s->set_.store(kLeft);
  s->free_if_left();
}

// Whoever waits in it finds nothing to look at, and must not find another set here.
void WatchedSet::free_if_left() {
  int left = kLeft;
  if (inside_.load() <= 0 && set_.compare_exchange_strong(left, 0))
    watched_sets.fetch_sub(1, std::memory_order_acq_rel);
}

bool WatchedSet::is_kernel_due() {
  const Time now = base::now();
  if (now < Time{ask_again_at_.load(std::memory_order_relaxed)}) return false;
  asked_at_.store(now.ns, std::memory_order_relaxed);
  return true;
}

void WatchedSet::note_kernel_asked() {
  const Time now = base::now();
  const Duration took = now - Time{asked_at_.load(std::memory_order_relaxed)};
  const Duration pause =
      std::clamp(Duration{took.ns * kKernelPart}, kKernelEvery, kKernelAtLeastEvery);
  ask_again_at_.store((now + pause).ns, std::memory_order_relaxed);
}

bool WatchedSet::settle() {
  bool has_bytes = false;
  if (!is_quiet()) questions_.store(0, std::memory_order_relaxed);
  each([&](Watch& w, int fd) {
    if (!w.has_lazy_bell.load(std::memory_order_relaxed)) return;
    with_stream(fd, [&](engine::Stream& stream) {
      stream.let_bells_lie(0);
      stream.settle(fd);
      has_bytes |= stream.glance().has_bytes;
    });
    w.has_lazy_bell.store(false, std::memory_order_relaxed);
    if (w.is_wanted.load(std::memory_order_relaxed)) return;
    tell(w, fd);
    // Another thread may have added it again meanwhile.
    if (w.change_fd(fd + 1, kTaken)) w.fd.store(w.is_wanted.load() ? fd + 1 : 0);
  });
  return !has_bytes;
}

// Has the kernel said that `w` is readable for the sake of a bell alone, as far as anyone can see?
bool WatchedSet::is_for_bell(Watch& w, int fd, engine::Stream& stream) {
  const engine::Glance glance = stream.glance();
  if (glance.has_bytes || !glance.is_in_memory) return false;
  const bool is_edge = (w.events.load(std::memory_order_relaxed) & EPOLLET) != 0;
  if (glance.is_wire_in_use || is_edge || !w.has_lazy_bell.load(std::memory_order_relaxed)) {
    // An FPDU, or a bell that was rung before the bytes were taken and came after. Or an end, of
    // which an edge tells once.
    stream.settle(fd);
    pollfd now{fd, POLLIN, 0};
    return !stream.glance().has_bytes && real.poll(&now, 1, 0) == 0;
  }
  // If nothing has come for long, it may mean an end.
  const Time now = base::now();
  if (w.seen.exchange(glance.position, std::memory_order_relaxed) != glance.position)
    w.seen_at.store(now.ns, std::memory_order_relaxed);
  if (now - Time{w.seen_at.load(std::memory_order_relaxed)} < kMostStale) return true;
  stream.let_bells_lie(0);
  stream.settle(fd);
  w.has_lazy_bell.store(false, std::memory_order_relaxed);
  return true;
}

// What is left of what the kernel says of one descriptor.
uint32_t WatchedSet::without_bell(const epoll_event& event) {
  uint32_t left = event.events;
  bool is_watched = false;
  const int saved_errno = errno;
  const int set = set_.load(std::memory_order_relaxed) - 1;
  each([&](Watch& w, int fd) {
    if (w.data.load(std::memory_order_relaxed) != event.data.u64) return;
    is_watched = true;
    constexpr uint32_t kReset = EPOLLERR | EPOLLHUP;
    if ((left & kReset) != 0)
      with_stream(fd, [&](engine::Stream& stream) {
        static_assert(EPOLLERR == POLLERR && EPOLLHUP == POLLHUP);
        left &= ~static_cast<uint32_t>(stream.untrue_at_end());
        if ((left & kReset) == EPOLLHUP && stream.has_kept_error()) left |= EPOLLERR;
      });
    if ((left & kEnded) != 0 && w.is_hushed.load(std::memory_order_relaxed)) {
      // With that it is readable too.
      const uint32_t wanted = w.events.load(std::memory_order_relaxed);
      if (!MemberChange::is_any_of(set)) left &= wanted | EPOLLERR | EPOLLHUP;
      left |= wanted & (kReadable | EPOLLRDHUP);
      return tell(w, fd);
    }
    if ((left & kReadable) == 0 || (left & kEnded) != 0 || MemberChange::is_any_of(set)) return;
    with_stream(fd, [&](engine::Stream& stream) {
      if (is_for_bell(w, fd, stream)) {
        left &= ~kReadable;
      } else if ((w.events.load(std::memory_order_relaxed) & EPOLLET) != 0) {
        // The edge of a bell whose bytes have been reported, from memory, is an old one.
        const engine::Glance glance = stream.glance();
        if (w.reported.exchange(glance.position, std::memory_order_relaxed) == glance.position &&
            glance.has_bytes && glance.is_in_memory && !glance.is_wire_in_use)
          left &= ~kReadable;
      }
      if (is_quiet() && w.has_lazy_bell.load(std::memory_order_relaxed) &&
          is_all_in_memory(stream.glance()))
        hush(w, fd);
    });
  });
  errno = saved_errno;
  if (!is_watched) others_busy_until_.store((base::now() + kBusy).ns, std::memory_order_relaxed);
  return left;
}

int WatchedSet::without_bells(epoll_event* answer, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    epoll_event event = answer[i];
    event.events = without_bell(event);
    if (event.events != 0) answer[kept++] = event;
  }
  return kept;
}

bool WatchedSet::is_for_kernel(int room) const {
  if (room > kLittleRoom) return false;
  int streams = 0;
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i)
    if (watches_[i].fd.load(std::memory_order_acquire) > 0 &&
        watches_[i].is_wanted.load(std::memory_order_relaxed))
      ++streams;
  if (room < streams) return true;
  return room < streams + static_cast<int>(others_.count()) &&
         base::now() < Time{others_busy_until_.load(std::memory_order_relaxed)};
}

}  // namespace ddpsock::shim
