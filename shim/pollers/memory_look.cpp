// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/memory_look.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/process.h"
#include "base/spin.h"
#include "shim/pollers/memory_bells.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

// What settling one stream costs, the peer's next bell included.
constexpr Duration kSettling = Duration::from_us(2);
constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;

}  // namespace

void MemoryLook::look(unsigned most) {
  StreamTable& streams = set_.members().streams();
  const unsigned end = std::min(streams.end(), most);
  // Where the last call stopped for want of room.
  const unsigned first = end > 0 ? streams.first() % end : 0;
  for (unsigned n = 0; n < end; ++n) add(streams.at((first + n) % end), (first + n) % end);
}

void MemoryLook::add(WatchedStream& w, unsigned place) {
  const uint32_t version = w.version.load();
  const int fd = w.fd.load(std::memory_order_acquire) - 1;
  if (fd < 0 || socket_at(fd) == nullptr) return;
  Item& item = *std::construct_at(&items_[count_], fd);
  if (item.use && item.use.phase() == Phase::kStream) {
    item.watch = &w;
    item.version = version;
    item.stream = item.use->stream.load(std::memory_order_acquire);
    item.place = place;
    if (const engine::Glance glance = item.stream->glance(); glance.may_be_in_memory) {
      note(count_++, glance);
      return;
    }
  }
  const bool is_left = item.stream != nullptr;
  std::destroy_at(&item);
  if (is_left) set_.hand_over_seen(w, fd, version);
}

void MemoryLook::know(std::span<const epoll_event> events) {
  if (events.empty()) return;
  for (unsigned i = 0; i < count_; ++i) {
    const uint64_t data = items_[i].watch->data.load(std::memory_order_relaxed);
    for (const epoll_event& event : events)
      if (event.data.u64 == data) items_[i].is_known = true;
  }
}

// Its place may have been given to another member meanwhile.
bool MemoryLook::is_wanted(const Item& item) {
  return is_current(item) && item.watch->is_wanted.load(std::memory_order_relaxed);
}

// What a program is to be told, of what it asked for. Edges of writability are the kernel's.
uint32_t MemoryLook::news_of(const Item& item, const engine::Glance& glance) {
  const WatchedStream& w = *item.watch;
  const uint32_t wanted = is_wanted(item) ? w.events.load(std::memory_order_relaxed) : 0;
  const bool is_edge = (wanted & EPOLLET) != 0;
  uint32_t news = 0;
  if (glance.has_bytes && !(is_edge && w.reported.load(std::memory_order_relaxed) ==
                                           WatchedStream::mark(item.version, glance.position)))
    news = wanted & kReadable;
  if ((wanted & kWritable) != 0 && !is_edge && glance.is_in_memory &&
      item.stream->has_memory_room())
    news |= wanted & kWritable;
  return news;
}

// True: something was found that was neither found nor known before.
bool MemoryLook::note(unsigned i, const engine::Glance& glance) {
  Item& item = items_[i];
  const uint32_t news = news_of(item, glance);
  if (glance.peer_cpu != 0) peer_cpu_ = glance.peer_cpu;
  if (glance.is_in_memory && glance.ready_since == 0 &&
      set_.members().streams().end(std::memory_order_relaxed) > 1)
    item.stream->want_order();
  item.is_on_wire = !glance.is_in_memory || glance.is_wire_in_use || glance.may_have_ended;
  if ((news & ~item.news) == 0) return false;
  if (item.news == 0) order_[found_++] = i;
  item.news |= news;
  item.position = glance.position;
  item.ready_since = glance.ready_since;
  return !item.is_known;
}

bool MemoryLook::pass() {
  bool has_added = false;
  for (unsigned i = 0; i < count_; ++i)
    if ((items_[i].news & kReadable) == 0) has_added |= note(i, items_[i].stream->glance());
  return has_added;
}

bool MemoryLook::find() {
  bool has_added = false;
  if (std::exchange(is_first_pass_told_, true)) {
    has_added = pass();
  } else {
    for (unsigned n = 0; n < found_ && !has_added; ++n) has_added = !items_[order_[n]].is_known;
  }
  while (has_added && pass()) continue;
  return has_added;
}

std::span<const int> MemoryLook::wires() {
  size_t count = 0;
  for (unsigned i = 0; i < count_; ++i)
    if (items_[i].is_on_wire && (items_[i].news & kReadable) == 0) wires_[count++] = items_[i].fd;
  return {wires_, count};
}

bool MemoryLook::spin() {
  int64_t lazy = 0;
  for (unsigned i = 0; i < count_; ++i)
    if (items_[i].watch->has_lazy_bell.load(std::memory_order_relaxed)) ++lazy;
  base::Spin& mine = base::Spin::mine();
  const auto has_news = [this] {
    for (unsigned i = 0; i < count_; ++i)
      if (news_of(items_[i], items_[i].stream->glance()) != 0) return true;
    return false;
  };
  if (mine.is_beside(peer_cpu_)) return mine.by_yielding(has_news);
  if (!mine.is_worth(peer_cpu_, peer_cpu_)) return false;
  return mine.until(has_news, Duration{kSettling.ns * lazy});
}

// Where memory is full or is not sent to yet, the kernel tells the truth.
bool MemoryLook::is_writable(const Item& item) {
  if (item.stream->has_memory_room()) return true;
  pollfd asked{item.fd, POLLOUT, 0};
  return real.poll(&asked, 1, 0) == 1 && (asked.revents & POLLOUT) != 0;
}

// The events of a stream that are now being reported, and whose they are. Of two threads one gets
// an edge.
uint32_t MemoryLook::take(Item& item, uint64_t& data) {
  WatchedStream& w = *item.watch;
  uint32_t news = item.news;
  data = w.data.load(std::memory_order_acquire);
  if (!is_current(item)) return 0;
  if ((news & kReadable) == 0) return news;
  const uint64_t mark = WatchedStream::mark(item.version, item.position);
  const uint32_t wanted = w.events.load(std::memory_order_relaxed);
  if ((wanted & EPOLLET) == 0) {
    w.reported.store(mark, std::memory_order_relaxed);
  } else if (w.reported.exchange(mark, std::memory_order_relaxed) == mark) {
    news &= ~kReadable;
  } else if ((wanted & kWritable) != 0 && is_writable(item)) {
    news |= wanted & kWritable;  // an edge tells all that is so
  }
  note_lying_in(set_);
  item.stream->set_watcher(base::thread_id());
  w.has_lazy_bell.exchange(true);
  if (is_current(item)) return news;
  // None did so: only this thread would have let one lie. The number may be another's.
  item.stream->set_watcher(0);
  return 0;
}

// The oldest first. What a peer notes of itself may be a lie, and then it is misplaced, but nobody
// else is.
void MemoryLook::sort_found() {
  const uint64_t now = base::ticks();
  for (unsigned n = 0; n < found_; ++n) {
    constexpr uint64_t kOldest = ~uint64_t{0} / kAll / kAll;
    const uint64_t since = found_item(n).ready_since;
    const uint64_t age = since > now ? 0 : std::min(now - since, kOldest);
    order_[n] |= (kOldest - age) * kAll * kAll + n * kAll;
  }
  std::sort(order_, order_ + found_);
}

template <typename Is>
MemoryLook::Item* MemoryLook::find_item(Is is) {
  for (unsigned n = 0; n < found_; ++n)
    if (Item& item = found_item(n); is(item)) return &item;
  return nullptr;
}

// How many of the kernel's events are of streams that were found. Once: the program may be giving
// them other data.
int MemoryLook::match(const epoll_event* events, int count) {
  int matches = 0;
  for (int i = 0; i < count; ++i) {
    Item* item = find_item([data = events[i].data.u64](const Item& it) {
      return it.kernel_event == kNone && it.watch->data.load(std::memory_order_relaxed) == data;
    });
    if (item == nullptr) continue;
    item->kernel_event = i;
    ++matches;
  }
  return matches;
}

// Of its other members the kernel knows only for which of the streams a bell came before them:
// those stay before them.
int MemoryLook::put_all(epoll_event* events, int count, int all) {
  if (found_ > 1) sort_found();
  int others = 0;
  for (int i = 0; i < count; ++i) {
    Item* item = find_item([=](const Item& it) { return it.kernel_event == i; });
    if (item == nullptr) {
      events[others++] = events[i];
      continue;
    }
    item->kernel_news = events[i].events;
    item->kernel_data = events[i].data.u64;
    // A bell that was left lying tells of bytes that have been reported.
    if (!item->watch->has_lazy_bell.load(std::memory_order_relaxed)) item->others_before = others;
  }
  for (unsigned n = found_; n-- > 1;)
    found_item(n - 1).others_before =
        std::min(found_item(n - 1).others_before, found_item(n).others_before);
  epoll_event* other = events + (all - others);
  std::copy_backward(events, events + others, events + all);
  int put = 0;
  for (unsigned n = 0; n < found_; ++n) {
    Item& item = found_item(n);
    const epoll_event* const before = events + all - others + std::min(others, item.others_before);
    while (other < before) events[put++] = *other++;
    uint64_t data;
    const uint32_t news = take(item, data) | item.kernel_news;
    if (news == 0) continue;
    events[put].events = news;
    events[put++].data.u64 = item.kernel_news != 0 ? item.kernel_data : data;
  }
  while (other < events + all) events[put++] = *other++;
  return put;
}

int MemoryLook::put(epoll_event* events, int count, int room) {
  if (found_ == 0) return count;
  const int all = count - match(events, count) + static_cast<int>(found_);
  if (all <= room) return put_all(events, count, all);
  for (unsigned n = 0; n < found_; ++n) {
    Item& item = found_item(n);
    if (item.kernel_event == kNone && count == room) {
      set_.members().streams().begin_at(item.place);
      set_.look_turn().note_left();
      break;
    }
    uint64_t data;
    const uint32_t news = take(item, data);
    if (item.kernel_event != kNone) {
      events[item.kernel_event].events |= news;
    } else if (news != 0) {
      events[count].events = news;
      events[count++].data.u64 = data;
    }
  }
  return count;
}

}  // namespace ddpsock::shim
