// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/memory_bells.h"

#include <poll.h>

#include <utility>

#include "base/keep_errno.h"

namespace ddpsock::shim {

[[gnu::tls_model("initial-exec")]] thread_local constinit WatchedSet* detail::lying_in = nullptr;

namespace {

constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kEnded = EPOLLERR | EPOLLHUP | EPOLLRDHUP;

bool is_all_in_memory(const engine::Glance& glance) {
  return glance.is_in_memory && !glance.is_wire_in_use && !glance.may_have_ended;
}

void tell_seen(WatchedSet& set, WatchedStream& w, int fd, uint32_t version) {
  const WatchedSet::Hold hold(set);
  if (hold.is_held() && w.is(fd, version)) w.tell(set.place(), fd);
}

// Either whoever goes to wait, or forks, sees that, or is seen here.
void hush_seen(WatchedSet& set, WatchedStream& w, int fd, uint32_t version) {
  const WatchedSet::Hold hold(set);
  if (!hold.is_held() || !w.is(fd, version)) return;
  if (!w.can_be_hushed()) return set.deferral().end_quiet();
  w.hush(set.place(), fd);
  if (!set.waiters().is_one_alone() || !set.deferral().is_any()) w.tell(set.place(), fd);
}

// What is left of what the kernel says of one descriptor.
uint32_t without_bell(WatchedSet& set, const epoll_event& event) {
  uint32_t left = event.events;
  bool is_watched = false;
  const base::KeepErrno keep;
  set.members().streams().each([&](WatchedStream& w, int fd) {
    // Of many streams most are left by this.
    if (w.data.load(std::memory_order_relaxed) != event.data.u64) return;
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
      if (!set.is_changing()) left &= wanted | EPOLLERR | EPOLLHUP;
      left |= wanted & (kReadable | EPOLLRDHUP);
      return tell_seen(set, w, fd, version);
    }
    if ((left & kReadable) == 0 || (left & kEnded) != 0 || set.is_changing()) return;
    with_stream(fd, [&](engine::MemoryPart& stream) {
      if (w.settle_if_for_bell(fd, stream)) {
        left &= ~kReadable;
      } else if ((w.events.load(std::memory_order_relaxed) & EPOLLET) != 0) {
        // The edge of a bell whose bytes have been reported, from memory, is an old one.
        const engine::Glance glance = stream.glance();
        const uint64_t mark = WatchedStream::mark(version, glance.position);
        if (w.reported.exchange(mark, std::memory_order_relaxed) == mark && glance.has_bytes &&
            glance.is_in_memory && !glance.is_wire_in_use)
          left &= ~kReadable;
      }
      if (set.deferral().is_quiet() && w.has_lazy_bell.load(std::memory_order_relaxed) &&
          is_all_in_memory(stream.glance()))
        hush_seen(set, w, fd, version);
    });
  });
  if (!is_watched) set.members().others().note_report();
  return left;
}

}  // namespace

bool settle(WatchedSet& set) {
  bool has_bytes = false, has_left = false;
  set.deferral().note_sleep();
  set.members().streams().each([&](WatchedStream& w, int fd) {
    // Before: another thread may report it meanwhile.
    if (!w.has_lazy_bell.load(std::memory_order_relaxed) || !w.has_lazy_bell.exchange(false))
      return;
    with_stream(fd, [&](engine::MemoryPart& stream) {
      stream.set_watcher(0);
      stream.settle(fd);
      has_bytes |= stream.glance().has_bytes;
    });
    has_left |= !w.is_wanted.load(std::memory_order_relaxed);
  });
  if (has_left) {
    const WatchedSet::Hold hold(set);
    if (hold.is_held()) set.members().free_unwatched();
  }
  return !has_bytes;
}

void detail::settle_last() {
  settle(*std::exchange(lying_in, nullptr));
}

int without_bells(WatchedSet& set, epoll_event* answer, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    epoll_event event = answer[i];
    event.events = without_bell(set, event);
    if (event.events != 0) answer[kept++] = event;
  }
  return kept;
}

}  // namespace ddpsock::shim
