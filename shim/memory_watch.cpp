// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/memory_watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/process.h"
#include "base/spin.h"
#include "shim/fd_table.h"
#include "shim/real.h"

namespace ddpsock::shim {

constinit std::atomic<unsigned> watched_sets{0};
constinit std::atomic<unsigned> WatchedSet::deferred{0};

namespace {

constexpr unsigned kMostSets = 16;
// While there are bytes in memory, descriptors of other kinds are looked after this often; less if
// that takes long, so that it never takes more than a part of the time.
constexpr Duration kKernelEvery = Duration::from_us(100),
                   kKernelAtLeastEvery = Duration::from_ms(2);
constexpr int64_t kKernelPart = 16;
// What settling one stream costs, the peer's next bell included.
constexpr Duration kSettling = Duration::from_us(2);
// A bell may lie unread for so long without bytes.
constexpr Duration kMostStale = Duration::from_ms(1);
constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;
constexpr uint32_t kEnded = EPOLLERR | EPOLLHUP | EPOLLRDHUP;

alignas(WatchedSet) constinit std::array<WatchedSet, kMostSets> sets{};

// Nobody tells us that a set was closed.
bool is_epoll_set(int fd) {
  char path[32], name[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int saved_errno = errno;
  const ssize_t n = readlink(path, name, sizeof name);
  errno = saved_errno;
  return n > 0 && std::string_view(name, static_cast<size_t>(n)) == "anon_inode:[eventpoll]";
}

// Runs `f(Stream&)` if `fd` is a stream in DDPMODE.
template <typename F>
void with_stream(int fd, F f) {
  if (socket_at(fd) == nullptr) return;
  const SocketUse use(fd);
  if (use && has_live_stream(use.phase())) f(*use->stream.load(std::memory_order_acquire));
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
  for (WatchedSet& s : sets)
    if (s.set_.load(std::memory_order_acquire) == set + 1) return &s;
  return nullptr;
}

WatchedSet* WatchedSet::claim(int set) {
  for (bool has_swept = false;; has_swept = true) {
    for (WatchedSet& s : sets) {
      int free = 0;
      if (!s.set_.compare_exchange_strong(free, set + 1)) continue;
      watched_sets.fetch_add(1, std::memory_order_acq_rel);
      return &s;
    }
    if (has_swept) return nullptr;
    for (const WatchedSet& s : sets)
      if (const int other = s.set_.load(std::memory_order_acquire) - 1;
          other >= 0 && !is_epoll_set(other))
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

// A program that gives two descriptors the same data cannot be told which of them has bytes.
bool WatchedSet::has_other_with(uint64_t data, int fd) {
  bool has = false;
  each([&](Watch& w, int watched) {
    has |= watched != fd && w.is_wanted.load(std::memory_order_relaxed) &&
           w.data.load(std::memory_order_relaxed) == data;
  });
  return has;
}

void WatchedSet::watch(int set, int fd, const epoll_event& event) {
  const bool is_served = (event.events & (EPOLLONESHOT | EPOLLEXCLUSIVE)) == 0;
  bool may_be_in_memory = false;
  with_stream(fd,
              [&](engine::Stream& stream) { may_be_in_memory = stream.glance().may_be_in_memory; });
  if (!is_served || !may_be_in_memory) return forget(set, fd);
  WatchedSet* s = find(set);
  if (s == nullptr && (s = claim(set)) == nullptr) return;
  Watch* w = s->find_fd(fd);
  const bool is_new = w == nullptr;
  for (unsigned i = 0; w == nullptr && i < kMost; ++i) {
    if (s->watches_[i].fd.load(std::memory_order_relaxed) != 0) continue;
    w = &s->watches_[i];
    unsigned end = s->end_.load(std::memory_order_relaxed);
    while (end <= i && !s->end_.compare_exchange_weak(end, i + 1)) {
    }
  }
  if (w == nullptr || s->has_other_with(event.data.u64, fd)) return forget(set, fd);
  w->events.store(event.events, std::memory_order_relaxed);
  w->data.store(event.data.u64, std::memory_order_relaxed);
  w->is_wanted.store(true, std::memory_order_relaxed);
  w->is_in_kernel.store(true, std::memory_order_relaxed);
  w->kernel_events.store(event.events, std::memory_order_relaxed);
  w->kernel_data.store(event.data.u64, std::memory_order_relaxed);
  w->reported.store(0, std::memory_order_relaxed);
  if (is_new) {
    w->seen.store(~uint64_t{0}, std::memory_order_relaxed);
    w->has_lazy_bell.store(false, std::memory_order_relaxed);
  }
  w->fd.store(fd + 1, std::memory_order_release);
}

void WatchedSet::forget(int set, int fd) {
  WatchedSet* s = find(set);
  if (s == nullptr) return;
  s->each([&](Watch& w, int watched) {
    if (watched != fd) return;
    s->tell(w, fd);
    // Whoever watches it from now on relies on the kernel.
    with_stream(fd, [&](engine::Stream& stream) {
      stream.let_bells_lie(0);
      stream.settle(fd);
    });
    w.fd.store(0, std::memory_order_release);
  });
}

void WatchedSet::unwatch(int set, int fd) {
  WatchedSet* s = find(set);
  Watch* w = s != nullptr ? s->find_fd(fd) : nullptr;
  if (w == nullptr) return;
  w->is_wanted.store(false, std::memory_order_relaxed);
  w->is_in_kernel.store(false, std::memory_order_relaxed);
  if (!w->has_lazy_bell.load(std::memory_order_relaxed)) w->fd.store(0, std::memory_order_release);
}

bool WatchedSet::defer(int set, int operation, int fd, const epoll_event* event) {
  WatchedSet* s = find(set);
  Watch* w = s != nullptr ? s->find_fd(fd) : nullptr;
  if (w == nullptr) return false;
  const bool is_wanted = w->is_wanted.load(std::memory_order_relaxed);
  const bool is_usual = w->has_lazy_bell.load(std::memory_order_relaxed) &&
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
  if (!s->is_deferring_.exchange(true)) deferred.fetch_add(1);
  // Either a thread that goes to wait sees that, or it is seen here.
  if (s->inside_.load() > 0) s->tell_all();
  return true;
}

void WatchedSet::tell(Watch& w, int fd) {
  const bool is_wanted = w.is_wanted.load(std::memory_order_relaxed);
  const bool is_in_kernel = w.is_in_kernel.load(std::memory_order_relaxed);
  epoll_event event{};
  event.events = w.events.load(std::memory_order_relaxed);
  event.data.u64 = w.data.load(std::memory_order_relaxed);
  const bool is_same = w.kernel_events.load(std::memory_order_relaxed) == event.events &&
                       w.kernel_data.load(std::memory_order_relaxed) == event.data.u64;
  if (is_wanted == is_in_kernel && (!is_wanted || is_same)) return;
  const int operation = !is_wanted ? EPOLL_CTL_DEL : is_in_kernel ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  const int saved_errno = errno;
  real.epoll_ctl(set_.load(std::memory_order_relaxed) - 1, operation, fd, &event);
  errno = saved_errno;
  w.is_in_kernel.store(is_wanted, std::memory_order_relaxed);
  w.kernel_events.store(event.events, std::memory_order_relaxed);
  w.kernel_data.store(event.data.u64, std::memory_order_relaxed);
}

void WatchedSet::tell_all() {
  if (!is_deferring_.exchange(false)) return;
  deferred.fetch_sub(1);
  each([this](Watch& w, int fd) { tell(w, fd); });
}

void WatchedSet::tell_kernel_all() {
  for (WatchedSet& s : sets) s.tell_all();
}

WatchedSet::Inside::Inside(WatchedSet& set) : set_(set) {
  set.inside_.fetch_add(1);
  if (set.waiter_.exchange(base::thread_id()) != base::thread_id()) set.tell_all();
}

void WatchedSet::forget_fd(int fd) {
  if (!is_any_set_watched()) return;
  for (WatchedSet& s : sets)
    s.each([&](Watch& w, int watched) {
      if (watched != fd) return;
      s.tell(w, fd);
      w.fd.store(0, std::memory_order_release);
    });
}

void WatchedSet::forget_set(int set) {
  WatchedSet* s = find(set);
  if (s == nullptr) return;
  s->each([](Watch& w, int) { w.fd.store(0, std::memory_order_release); });
  s->end_.store(0, std::memory_order_relaxed);
  s->set_.store(0, std::memory_order_release);
  watched_sets.fetch_sub(1, std::memory_order_acq_rel);
}

// All streams of a set, kept from being closed while they are looked at again and again.
class WatchedSet::Look {
 public:
  explicit Look(WatchedSet& set) {
    const unsigned end = set.end_.load(std::memory_order_acquire);
    // Where the last call stopped for want of room.
    const unsigned first = end > 0 ? set.next_.load(std::memory_order_relaxed) % end : 0;
    for (unsigned n = 0; n < end; ++n) {
      Watch& w = set.watches_[(first + n) % end];
      const int fd = w.fd.load(std::memory_order_acquire) - 1;
      if (fd < 0 || socket_at(fd) == nullptr) continue;
      Item& item = items_[count_];
      item.use.emplace(fd);
      if (!*item.use || item.use->phase() != Phase::kStream) {
        item.use.reset();
        continue;
      }
      item.watch = &w;
      item.stream = (*item.use)->stream.load(std::memory_order_acquire);
      item.place = (first + n) % end;
      if (item.stream->glance().may_be_in_memory) {
        ++count_;
      } else {
        w.fd.store(0, std::memory_order_release);
        item.use.reset();
      }
    }
  }

  int collect(WatchedSet& set, epoll_event* events, int room) {
    int count = 0;
    for (unsigned i = 0; i < count_; ++i) {
      Item& item = items_[i];
      const engine::Glance glance = item.stream->glance();
      const uint32_t news = news_of(*item.watch, glance);
      if (news == 0) continue;
      if (count == room) {
        set.next_.store(item.place, std::memory_order_relaxed);
        break;
      }
      if ((news & kReadable) != 0) {
        item.watch->reported.store(glance.position, std::memory_order_relaxed);
        item.watch->has_lazy_bell.store(true, std::memory_order_relaxed);
        item.stream->let_bells_lie(base::thread_id());
      }
      events[count].events = news;
      events[count++].data.u64 = item.watch->data.load(std::memory_order_relaxed);
    }
    return count;
  }

  bool spin() {
    uint32_t peer_cpu = 0;
    int64_t lazy = 0;
    for (unsigned i = 0; i < count_; ++i) {
      if (const auto glance = items_[i].stream->glance(); glance.peer_cpu != 0)
        peer_cpu = glance.peer_cpu;
      if (items_[i].watch->has_lazy_bell.load(std::memory_order_relaxed)) ++lazy;
    }
    base::Spin& mine = base::Spin::mine();
    const auto has_news = [this] {
      for (unsigned i = 0; i < count_; ++i)
        if (news_of(*items_[i].watch, items_[i].stream->glance()) != 0) return true;
      return false;
    };
    if (mine.is_beside(peer_cpu)) return mine.by_yielding(has_news);
    if (!mine.is_worth(peer_cpu, peer_cpu)) return false;
    return mine.until(has_news, Duration{kSettling.ns * lazy});
  }

 private:
  struct Item {
    std::optional<SocketUse> use;
    Watch* watch = nullptr;
    engine::Stream* stream = nullptr;
    unsigned place = 0;
  };

  // What a program is to be told, of what it asked for. Edges of writability are the kernel's.
  static uint32_t news_of(const Watch& w, const engine::Glance& glance) {
    const uint32_t wanted =
        w.is_wanted.load(std::memory_order_relaxed) ? w.events.load(std::memory_order_relaxed) : 0;
    const bool is_edge = (wanted & EPOLLET) != 0;
    uint32_t news = 0;
    if (glance.has_bytes &&
        !(is_edge && w.reported.load(std::memory_order_relaxed) == glance.position))
      news = wanted & kReadable;
    if (glance.has_room && !is_edge) news |= wanted & kWritable;
    return news;
  }

  std::array<Item, kMost> items_;
  unsigned count_ = 0;
};

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

int WatchedSet::collect(epoll_event* events, int room, bool may_spin) {
  Look look(*this);
  const int count = look.collect(*this, events, room);
  if (count > 0 || !may_spin || !look.spin()) return count;
  return look.collect(*this, events, room);
}

bool WatchedSet::settle() {
  bool has_bytes = false;
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
    w.fd.store(0, std::memory_order_release);
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

// What is left of an answer of the kernel's without what it says because of bells.
uint32_t WatchedSet::without_bells(const epoll_event& event) {
  if ((event.events & kReadable) == 0 || (event.events & kEnded) != 0) return event.events;
  uint32_t left = event.events;
  const int saved_errno = errno;
  each([&](Watch& w, int fd) {
    if (w.data.load(std::memory_order_relaxed) != event.data.u64) return;
    with_stream(fd, [&](engine::Stream& stream) {
      if (is_for_bell(w, fd, stream)) left &= ~kReadable;
    });
  });
  errno = saved_errno;
  return left;
}

int WatchedSet::merge(epoll_event* events, int kept, const epoll_event* answer, int count) {
  const int own = kept;
  for (int i = 0; i < count; ++i) {
    const epoll_event event = answer[i];
    const uint32_t left = without_bells(event);
    epoll_event* same = std::find_if(
        events, events + own, [&](const epoll_event& e) { return e.data.u64 == event.data.u64; });
    if (same != events + own) {
      same->events |= left;
    } else if (left != 0) {
      events[kept].events = left;
      events[kept++].data = event.data;
    }
  }
  return kept;
}

}  // namespace ddpsock::shim
