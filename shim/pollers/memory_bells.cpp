// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the kernel is told of a set's members, and what of its answers is a bell alone.
#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/keep_errno.h"
#include "base/process.h"
#include "shim/pollers/memory_watch.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

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

bool is_all_in_memory(const engine::Glance& glance) {
  return glance.is_in_memory && !glance.is_wire_in_use && !glance.may_have_ended;
}

}  // namespace

void WatchedSet::tell(Watch& w, int fd) {
  if (w.is_hushed.load(std::memory_order_relaxed)) w.is_hushed.store(false);
  tell_but_hush(w, fd);
}

uint32_t WatchedSet::events_for_kernel(const Watch& w) {
  const uint32_t events = w.events.load(std::memory_order_relaxed);
  return w.is_hushed.load(std::memory_order_relaxed) ? hushed(events) : events;
}

void WatchedSet::tell_but_hush(Watch& w, int fd) {
  const bool is_wanted = w.is_wanted.load(std::memory_order_relaxed);
  const bool is_in_kernel = w.is_in_kernel.load(std::memory_order_relaxed);
  epoll_event event{};
  event.events = events_for_kernel(w);
  event.data.u64 = w.data.load(std::memory_order_relaxed);
  const bool is_same = w.kernel_events.load(std::memory_order_relaxed) == event.events &&
                       w.kernel_data.load(std::memory_order_relaxed) == event.data.u64;
  if (is_wanted == is_in_kernel && (!is_wanted || is_same)) return;
  const base::KeepErrno keep;
  real.epoll_ctl(set_.load(std::memory_order_relaxed) - 1,
                 !is_wanted     ? EPOLL_CTL_DEL
                 : is_in_kernel ? EPOLL_CTL_MOD
                                : EPOLL_CTL_ADD,
                 fd, &event);
  w.is_in_kernel.store(is_wanted, std::memory_order_relaxed);
  w.kernel_events.store(event.events, std::memory_order_relaxed);
  w.kernel_data.store(event.data.u64, std::memory_order_relaxed);
}

void WatchedSet::tell_seen(Watch& w, int fd, uint32_t version) {
  const Hold hold(*this);
  if (hold.is_held() && w.is(fd, version)) tell(w, fd);
}

// Who is refused tells what it knows: its caller is about to ask the kernel.
void WatchedSet::tell_all() {
  if (!is_deferring_.load()) return;
  const Hold hold(*this);
  tell_all_now();
}

void WatchedSet::tell_all_now() {
  if (!is_deferring_.load()) return;
  is_kernel_behind_.store(false);
  end_quiet();
  each([this](Watch& w, int fd) { tell(w, fd); });
  if (is_deferring_.exchange(false)) deferred.fetch_sub(1);
}

bool WatchedSet::is_quiet_by_now() {
  const uint32_t asked = questions_.load(std::memory_order_relaxed) + 1;
  questions_.store(asked, std::memory_order_relaxed);
  if (is_quiet()) return true;
  if (asked <= quiet_after_.load(std::memory_order_relaxed) + kQuietAfter) return false;
  questions_.store(0, std::memory_order_relaxed);
  const Hold hold(*this);
  if (!hold.is_held() || !is_alone_inside()) return false;
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
void WatchedSet::hush_seen(Watch& w, int fd, uint32_t version) {
  const Hold hold(*this);
  if (!hold.is_held() || !w.is(fd, version)) return;
  const uint32_t events = w.events.load(std::memory_order_relaxed);
  if (hushed(events) == events) return end_quiet();  // it would be reported each time
  w.is_hushed.store(true);
  tell_but_hush(w, fd);
  if (!is_alone_inside() || !is_deferring_.load()) tell(w, fd);
}

void WatchedSet::tell_changes() {
  if (!is_kernel_behind_.load(std::memory_order_relaxed)) return;
  const Hold hold(*this);
  if (is_kernel_behind_.exchange(false)) each([this](Watch& w, int fd) { tell_but_hush(w, fd); });
}

int WatchedSet::ask(epoll_event* answer, int room) const {
  return real.epoll_wait(set_.load(std::memory_order_relaxed) - 1, answer, room, 0);
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
  bool has_bytes = false, has_left = false;
  if (!is_quiet()) questions_.store(0, std::memory_order_relaxed);
  each([&](Watch& w, int fd) {
    // Before: another thread may report it meanwhile.
    if (!w.has_lazy_bell.load(std::memory_order_relaxed) || !w.has_lazy_bell.exchange(false))
      return;
    with_stream(fd, [&](engine::Stream& stream) {
      stream.set_watcher(0);
      stream.settle(fd);
      has_bytes |= stream.glance().has_bytes;
    });
    has_left |= !w.is_wanted.load(std::memory_order_relaxed);
  });
  if (has_left) free_what_left();
  return !has_bytes;
}

void WatchedSet::settle_last() {
  std::exchange(lying_in_, nullptr)->settle();
}

// Members that were deleted and stayed for their bells' sake.
void WatchedSet::free_what_left() {
  const Hold hold(*this);
  if (!hold.is_held()) return;
  each([this](Watch& w, int fd) {
    if (w.is_wanted.load(std::memory_order_relaxed) ||
        w.has_lazy_bell.load(std::memory_order_relaxed))
      return;
    tell(w, fd);
    w.free();
  });
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
  stream.set_watcher(0);
  stream.settle(fd);
  w.has_lazy_bell.store(false, std::memory_order_relaxed);
  return true;
}

// What is left of what the kernel says of one descriptor.
uint32_t WatchedSet::without_bell(const epoll_event& event) {
  uint32_t left = event.events;
  bool is_watched = false;
  const base::KeepErrno keep;
  each([&](Watch& w, int fd) {
    const uint32_t version = w.version.load();
    if (!w.is(fd, version) || w.data.load(std::memory_order_relaxed) != event.data.u64) return;
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
      if (!is_changing()) left &= wanted | EPOLLERR | EPOLLHUP;
      left |= wanted & (kReadable | EPOLLRDHUP);
      return tell_seen(w, fd, version);
    }
    if ((left & kReadable) == 0 || (left & kEnded) != 0 || is_changing()) return;
    with_stream(fd, [&](engine::Stream& stream) {
      if (is_for_bell(w, fd, stream)) {
        left &= ~kReadable;
      } else if ((w.events.load(std::memory_order_relaxed) & EPOLLET) != 0) {
        // The edge of a bell whose bytes have been reported, from memory, is an old one.
        const engine::Glance glance = stream.glance();
        const uint64_t mark = Watch::mark(version, glance.position);
        if (w.reported.exchange(mark, std::memory_order_relaxed) == mark && glance.has_bytes &&
            glance.is_in_memory && !glance.is_wire_in_use)
          left &= ~kReadable;
      }
      if (is_quiet() && w.has_lazy_bell.load(std::memory_order_relaxed) &&
          is_all_in_memory(stream.glance()))
        hush_seen(w, fd, version);
    });
  });
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
