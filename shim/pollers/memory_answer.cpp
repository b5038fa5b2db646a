// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/memory_answer.h"

#include "base/clock.h"
#include "base/process.h"
#include "base/spin.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

constexpr short kReadable = POLLIN | POLLRDNORM;
constexpr short kWritable = POLLOUT | POLLWRNORM;
// What only the kernel knows (a peer that was killed, an error of the way there) is not left out
// for longer.
constexpr Duration kKernelsTurn = Duration::from_ms(1);

bool is_stream(int fd) {
  const Socket* socket = socket_at(fd);
  return socket != nullptr && socket->phase.load(std::memory_order_acquire) == Phase::kStream;
}

}  // namespace

unsigned MemoryAnswer::places_for(std::span<const pollfd> asked) {
  unsigned places = 0;
  for (const pollfd& one : asked)
    if (is_stream(one.fd) && ++places > kMost) break;
  return places;
}

void MemoryAnswer::look(unsigned most) {
  for (unsigned place = 0; place < asked_.size(); ++place) {
    const pollfd& asked = asked_[place];
    if (asked.fd < 0) continue;
    if (!is_stream(asked.fd) || count_ == most) {
      has_others_ = true;
      continue;
    }
    Item& item = *std::construct_at(&items_[count_], asked.fd);
    if (item.use && item.use.phase() == Phase::kStream) {
      item.stream = item.use->stream.load(std::memory_order_acquire);
      item.place = place;
      item.wanted = asked.events & (kReadable | kWritable);
      item.is_left = item.use->has_more_in_kernel.load(std::memory_order_relaxed);
      if (item.stream->glance().is_in_memory) {
        if ((item.wanted & kReadable) != 0) item.stream->note_poller(base::thread_id());
        ++count_;
        continue;
      }
    }
    std::destroy_at(&item);
    has_others_ = true;
  }
}

// A blocking send() of some size must find room; the kernel would be asked otherwise.
bool MemoryAnswer::has_room(const Item& item, int fd) {
  return item.stream->has_memory_room() &&
         (item.use->is_nonblocking.load(std::memory_order_relaxed) ||
          item.stream->is_send_ready(fd));
}

// True: it is ready for what it was not before.
bool MemoryAnswer::note(Item& item) {
  const engine::Glance glance = item.stream->glance();
  if (glance.peer_cpu != 0) peer_cpu_ = glance.peer_cpu;
  short ready = glance.has_bytes ? item.wanted & kReadable : 0;
  item.is_sure = glance.is_in_memory && !glance.is_wire_in_use && !glance.may_have_ended &&
                 item.stream->is_open_in_memory();
  if (item.is_sure && (item.wanted & kWritable) != 0) {
    item.is_sure = has_room(item, fd_of(item));
    ready |= item.wanted & kWritable;
  }
  if (!item.is_sure) ready = item.ready = 0;
  const bool has_news = (ready & ~item.ready) != 0;
  item.ready |= ready;
  return has_news;
}

// In the order in which they are named, as the kernel does it.
bool MemoryAnswer::find() {
  bool has_added = false;
  for (unsigned i = 0; i < count_; ++i) {
    Item& item = items_[i];
    const bool is_whole = item.is_sure && item.ready == item.wanted;
    if (!item.is_left && !is_whole) has_added |= note(item);
  }
  return has_added;
}

bool MemoryAnswer::has_found() const {
  for (unsigned i = 0; i < count_; ++i)
    if (items_[i].ready != 0) return true;
  return false;
}

void MemoryAnswer::spin() {
  base::Spin& mine = base::Spin::mine();
  const auto has_news = [this] { return find(); };
  if (mine.is_beside(peer_cpu_)) {
    mine.by_yielding(has_news);
  } else if (mine.is_worth(peer_cpu_, peer_cpu_)) {
    mine.until(has_news);
  }
}

void MemoryAnswer::settle() {
  for (unsigned i = 0; i < count_; ++i) {
    Item& item = items_[i];
    if ((item.wanted & kReadable) != 0 && item.stream->may_have_stale_bell() &&
        is_true_entry(item.use, fd_of(item)))
      item.stream->settle(fd_of(item));
  }
}

bool MemoryAnswer::needs_kernel() {
  const Time now = base::now();
  bool is_any_unsure = has_others_;
  for (unsigned i = 0; i < count_; ++i) {
    const Time asked{items_[i].use->kernel_asked_at.load(std::memory_order_relaxed)};
    is_turn_ |= now - asked >= kKernelsTurn;
    is_any_unsure |= !items_[i].is_sure;
  }
  return is_any_unsure || is_turn_;
}

// What makes the kernel call a stream readable where memory has nothing is a bell, or the end of a
// peer that was killed.
void MemoryAnswer::note_killed() {
  std::array<pollfd, kMost> doubtful;
  std::array<Item*, kMost> items;
  nfds_t count = 0;
  for (unsigned i = 0; i < count_; ++i) {
    Item& item = items_[i];
    const bool is_due = is_turn_ || item.is_left;
    if (!is_due || (asked_[item.place].revents & ~item.ready & kReadable) == 0) continue;
    doubtful[count] = {fd_of(item), POLLRDHUP, 0};
    items[count++] = &item;
  }
  if (count == 0 || real.poll(doubtful.data(), count, 0) == 0) return;
  for (nfds_t i = 0; i < count; ++i) items[i]->has_more = doubtful[i].revents != 0;
}

void MemoryAnswer::leave_to_kernel() {
  is_kernel_asked_ = true;
  const Time now = base::now();
  for (unsigned i = 0; i < count_; ++i)
    items_[i].has_more = (asked_[items_[i].place].revents & ~(kReadable | kWritable)) != 0;
  note_killed();
  for (unsigned i = 0; i < count_; ++i) {
    Item& item = items_[i];
    if (is_turn_) item.use->kernel_asked_at.store(now.ns, std::memory_order_relaxed);
    if (item.has_more != item.is_left)
      item.use->has_more_in_kernel.store(item.has_more, std::memory_order_relaxed);
    item.is_left |= item.has_more || (is_turn_ && !is_true_entry(item.use, fd_of(item)));
    item.is_sure &= !item.is_left;
    if (item.is_sure) {
      asked_[item.place].revents = 0;  // bells, of which memory knows better
    } else {
      item.ready = 0;
    }
  }
}

int MemoryAnswer::put() {
  if (!is_kernel_asked_)
    for (pollfd& one : asked_) one.revents = 0;
  for (unsigned i = 0; i < count_; ++i) {
    const Item& item = items_[i];
    if (item.ready != 0 && !is_true_entry(item.use, fd_of(item))) return 0;
    if (item.is_sure) asked_[item.place].revents = item.ready;
  }
  int count = 0;
  for (const pollfd& one : asked_)
    if (one.revents != 0) ++count;
  return count;
}

}  // namespace ddpsock::shim
