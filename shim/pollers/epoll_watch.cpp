// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/epoll_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/cancellation.h"
#include "base/fd.h"
#include "shim/real.h"

namespace ddpsock::shim {

constinit std::atomic<unsigned> watch_count{0};
constinit std::array<MemberChange::Changes, MemberChange::kPlaces> MemberChange::places{};

namespace {

// key: set in the upper half, fd + 1 in the lower; 0 is a free place, kClaimed one being written.
struct Watch {
  std::atomic<uint64_t> key;
  std::atomic<uint64_t> data;
  std::atomic<bool> may_withdraw;
  std::atomic<bool> is_alone;  // no other member has its data; false also: not yet known
};
constinit Watch watches[kMaxWatches];
constexpr uint64_t kClaimed = ~uint64_t{0};
// Places from here on were never used.
constinit std::atomic<unsigned> watches_end{0};

uint64_t make_key(int set, int fd) {
  return uint64_t{static_cast<uint32_t>(set)} << 32 | (static_cast<uint32_t>(fd) + 1);
}
int set_of(uint64_t key) {
  return static_cast<int>(key >> 32);
}
int fd_of(uint64_t key) {
  return static_cast<int>(static_cast<uint32_t>(key) - 1);
}
bool is_watch(uint64_t key) {
  return key != 0 && key != kClaimed;
}

template <typename Matches>
void forget_where(Matches matches) {
  const unsigned end = watches_end.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i) {
    uint64_t key = watches[i].key.load(std::memory_order_acquire);
    if (is_watch(key) && matches(key) && watches[i].key.compare_exchange_strong(key, 0))
      watch_count.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void raise_end(unsigned place) {
  unsigned end = watches_end.load(std::memory_order_relaxed);
  while (end <= place && !watches_end.compare_exchange_weak(end, place + 1)) {
  }
}

template <typename Visit>
void visit_with_data(int set, uint64_t data, Visit visit) {
  const unsigned end = watches_end.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i) {
    const uint64_t key = watches[i].key.load(std::memory_order_acquire);
    if (is_watch(key) && set_of(key) == set &&
        watches[i].data.load(std::memory_order_relaxed) == data)
      visit(watches[i], fd_of(key));
  }
}

bool has_data(const char* line, uint64_t data) {
  unsigned long long found;
  return sscanf(line, "tfd: %*d events: %*x data: %llx", &found) == 1 && found == data;
}

// As the kernel lists them: what was added before there was a watch is known to nobody else.
// Nothing where that cannot be read.
std::optional<unsigned> count_members_with(int set, uint64_t data) {
  std::array<char, 64> path;
  snprintf(path.data(), path.size(), "/proc/self/fdinfo/%d", set);
  const int saved_errno = errno;
  const base::Uncancelled whole;
  const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
  unsigned count = 0;
  std::array<char, 1024> text;
  std::array<char, 128> line;  // a longer one's end says nothing of the data
  size_t size = 0;
  for (ssize_t n = 1; file >= 0 && n > 0;) {
    n = real.read(file, text.data(), text.size());
    for (const char c : std::span(text).first(n > 0 ? static_cast<size_t>(n) : 0)) {
      if (c != '\n') {
        if (size + 1 < line.size()) line[size++] = c;
        continue;
      }
      line[size] = '\0';
      size = 0;
      if (has_data(line.data(), data)) ++count;
    }
  }
  if (file >= 0) base::close_own(file);
  errno = saved_errno;
  if (count == 0) return std::nullopt;  // the watch itself is one
  return count;
}

}  // namespace

void set_watch(int set, int fd, const epoll_event& event) {
  const bool may_withdraw = (event.events & (EPOLLET | EPOLLONESHOT)) == 0;
  bool is_known = false;
  visit_with_data(set, event.data.u64, [&](const Watch& watch, int watched) {
    is_known |= watched == fd && may_withdraw &&
                watch.may_withdraw.load(std::memory_order_relaxed) &&
                watch.is_alone.load(std::memory_order_relaxed);
  });
  if (is_known) return;
  forget_watch(set, fd);
  for (unsigned i = 0; i < kMaxWatches; ++i) {
    uint64_t free = watches[i].key.load(std::memory_order_relaxed);
    if (free != 0 || !watches[i].key.compare_exchange_strong(free, kClaimed)) continue;
    watches[i].data.store(event.data.u64, std::memory_order_relaxed);
    watches[i].may_withdraw.store(may_withdraw, std::memory_order_relaxed);
    watches[i].is_alone.store(false, std::memory_order_relaxed);
    watches[i].key.store(make_key(set, fd), std::memory_order_release);
    watch_count.fetch_add(1, std::memory_order_acq_rel);
    raise_end(i);
    return;
  }
}

void forget_watch(int set, int fd) {
  forget_where([=](uint64_t key) { return key == make_key(set, fd); });
}

void forget_watches_of(int fd) {
  forget_where([=](uint64_t key) { return fd_of(key) == fd; });
}

void forget_watches_in(int set) {
  forget_where([=](uint64_t key) { return set_of(key) == set; });
}

// In a child that a signal handler forked inside the call it is not counted any more.
void MemberChange::end() {
  if (!std::exchange(is_counted_, false)) return;
  uint64_t now = changes_.load();
  while (now >> 32 == before_ >> 32 && !changes_.compare_exchange_weak(now, now - 1)) {
  }
}

void MemberChange::in_child() {
  for (Changes& changes : places) {
    uint64_t now = changes.load();
    while (!changes.compare_exchange_weak(now, ((now >> 32) + 1) << 32)) {
    }
  }
}

void note_member(int set, int fd, epoll_data_t data) {
  visit_with_data(set, data.u64, [=](Watch& watch, int watched) {
    if (watched != fd) watch.may_withdraw.store(false, std::memory_order_relaxed);
  });
}

bool may_withdraw_from(int set, epoll_data_t data) {
  bool may = true, is_known = true;
  visit_with_data(set, data.u64, [&](const Watch& watch, int) {
    may &= watch.may_withdraw.load(std::memory_order_relaxed);
    is_known &= watch.is_alone.load(std::memory_order_relaxed);
  });
  if (!may || (is_known && !MemberChange::is_any_of(set))) return may;
  const std::optional<unsigned> count = count_members_with(set, data.u64);
  if (!count) return true;
  may = *count == 1;
  visit_with_data(set, data.u64, [=](Watch& watch, int) {
    if (may) {
      watch.is_alone.store(true, std::memory_order_relaxed);
    } else {
      watch.may_withdraw.store(false, std::memory_order_relaxed);
    }
  });
  return may;
}

Watched find_watch(int set, epoll_data_t data) {
  Watched found;
  visit_with_data(set, data.u64, [&](const Watch& watch, int fd) {
    if (found.fd < 0) found = {fd, watch.may_withdraw.load(std::memory_order_relaxed)};
  });
  return found;
}

}  // namespace ddpsock::shim
