// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/epoll_watch.h"

#include <cstdint>

namespace ddpsock::shim {

constinit std::atomic<unsigned> watch_count{0};

namespace {

// key: set in the upper half, fd + 1 in the lower; 0 is a free place, kClaimed one being written.
struct Watch {
  std::atomic<uint64_t> key;
  std::atomic<uint64_t> data;
  std::atomic<bool> may_withdraw;
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

}  // namespace

void set_watch(int set, int fd, const epoll_event& event) {
  forget_watch(set, fd);
  for (unsigned i = 0; i < kMaxWatches; ++i) {
    uint64_t free = watches[i].key.load(std::memory_order_relaxed);
    if (free != 0 || !watches[i].key.compare_exchange_strong(free, kClaimed)) continue;
    watches[i].data.store(event.data.u64, std::memory_order_relaxed);
    watches[i].may_withdraw.store((event.events & (EPOLLET | EPOLLONESHOT)) == 0,
                                  std::memory_order_relaxed);
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

Watched find_watch(int set, epoll_data_t data) {
  const unsigned end = watches_end.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i) {
    const uint64_t key = watches[i].key.load(std::memory_order_acquire);
    if (is_watch(key) && set_of(key) == set &&
        watches[i].data.load(std::memory_order_relaxed) == data.u64)
      return {fd_of(key), watches[i].may_withdraw.load(std::memory_order_relaxed)};
  }
  return {};
}

}  // namespace ddpsock::shim
