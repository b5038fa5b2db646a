// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/watched_stream.h"

#include <poll.h>

#include "base/clock.h"
#include "base/keep_errno.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

// A bell may lie unread for so long without bytes.
constexpr Duration kMostStale = Duration::from_ms(1);
constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;

// What the kernel is asked for of a stream that it is to be quiet about: an end it still reports.
constexpr uint32_t hushed(uint32_t events) {
  return (events & (EPOLLET | kWritable)) != 0 ? events : (events & ~kReadable) | EPOLLRDHUP;
}

}  // namespace

// Who has accepted it watches it before it reads, which is when it comes to lie in memory.
void WatchedStream::want_order(int number) {
  if (has_order.load(std::memory_order_relaxed)) return;
  with_stream(number, [this](engine::MemoryPart& stream) {
    if (stream.want_order()) has_order.store(true, std::memory_order_relaxed);
  });
}

void WatchedStream::begin() {
  seen.store(~uint64_t{0}, std::memory_order_relaxed);
  has_lazy_bell.store(false, std::memory_order_relaxed);
  has_order.store(false, std::memory_order_relaxed);
}

void WatchedStream::note_asked(const epoll_event& event) {
  events.store(event.events, std::memory_order_relaxed);
  data.store(event.data.u64, std::memory_order_release);
  is_wanted.store(true, std::memory_order_relaxed);
  is_in_kernel.store(true, std::memory_order_relaxed);
  kernel_events.store(event.events, std::memory_order_relaxed);
  kernel_data.store(event.data.u64, std::memory_order_relaxed);
  reported.store(0, std::memory_order_relaxed);
  is_hushed.store(false, std::memory_order_relaxed);
}

void WatchedStream::free() {
  version.fetch_add(1);
  fd.store(0, std::memory_order_release);
}

void WatchedStream::tell(const SetPlace& set, int number) {
  if (is_hushed.load(std::memory_order_relaxed)) is_hushed.store(false);
  tell_but_hush(set, number);
}

uint32_t WatchedStream::events_for_kernel() const {
  const uint32_t wanted = events.load(std::memory_order_relaxed);
  return is_hushed.load(std::memory_order_relaxed) ? hushed(wanted) : wanted;
}

void WatchedStream::tell_but_hush(const SetPlace& set, int number) {
  const bool is_member = is_wanted.load(std::memory_order_relaxed);
  const bool was_member = is_in_kernel.load(std::memory_order_relaxed);
  epoll_event event{};
  event.events = events_for_kernel();
  event.data.u64 = data.load(std::memory_order_relaxed);
  const bool is_same = kernel_events.load(std::memory_order_relaxed) == event.events &&
                       kernel_data.load(std::memory_order_relaxed) == event.data.u64;
  if (is_member == was_member && (!is_member || is_same)) return;
  const base::KeepErrno keep;
  real.epoll_ctl(set.number(std::memory_order_relaxed),
                 !is_member   ? EPOLL_CTL_DEL
                 : was_member ? EPOLL_CTL_MOD
                              : EPOLL_CTL_ADD,
                 number, &event);
  is_in_kernel.store(is_member, std::memory_order_relaxed);
  kernel_events.store(event.events, std::memory_order_relaxed);
  kernel_data.store(event.data.u64, std::memory_order_relaxed);
}

bool WatchedStream::can_be_hushed() const {
  const uint32_t wanted = events.load(std::memory_order_relaxed);
  return hushed(wanted) != wanted;
}

void WatchedStream::hush(const SetPlace& set, int number) {
  is_hushed.store(true);
  tell_but_hush(set, number);
}

// A thread that is reporting it sees that it is gone when it has let its bells lie, or does so
// before that is taken back.
void WatchedStream::give_up(const SetPlace& set, int number) {
  tell(set, number);
  free();
  with_stream(number, [number](engine::MemoryPart& stream) {
    stream.set_watcher(0);
    stream.settle(number);
  });
}

bool WatchedStream::settle_if_for_bell(int number, engine::MemoryPart& stream) {
  const engine::Glance glance = stream.glance();
  if (glance.has_bytes || !glance.is_in_memory) return false;
  const bool is_edge = (events.load(std::memory_order_relaxed) & EPOLLET) != 0;
  if (glance.is_wire_in_use || is_edge || !has_lazy_bell.load(std::memory_order_relaxed)) {
    // An FPDU, or a bell that was rung before the bytes were taken and came after. Or an end, of
    // which an edge tells once.
    stream.settle(number);
    pollfd now{number, POLLIN, 0};
    return !stream.glance().has_bytes && real.poll(&now, 1, 0) == 0;
  }
  // If nothing has come for long, it may mean an end.
  const Time now = base::now();
  if (seen.exchange(glance.position, std::memory_order_relaxed) != glance.position)
    seen_at.store(now.ns, std::memory_order_relaxed);
  if (now - Time{seen_at.load(std::memory_order_relaxed)} < kMostStale) return true;
  stream.set_watcher(0);
  stream.settle(number);
  has_lazy_bell.store(false, std::memory_order_relaxed);
  return true;
}

}  // namespace ddpsock::shim
