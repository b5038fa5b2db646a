// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The streams of one epoll set that may lie in shared memory, in places that stay where they are.
// Bounded. Zero memory is an empty table. Any thread looks through it at any time; one that takes a
// place holds the set (WatchedSet::Hold).
#ifndef DDPSOCK_SHIM_POLLERS_STREAM_TABLE_H_
#define DDPSOCK_SHIM_POLLERS_STREAM_TABLE_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "shim/pollers/watched_stream.h"

namespace ddpsock::shim {

class StreamTable {
 public:
  static constexpr unsigned kMost = 128;

  // Places from here on have no streams.
  unsigned end(std::memory_order order = std::memory_order_acquire) const {
    return end_.load(order);
  }
  WatchedStream& at(unsigned place) { return streams_[place]; }
  // Runs `visit(WatchedStream&, fd)` for each that is not free.
  template <typename F>
  void each(F visit) {
    const unsigned end = end_.load(std::memory_order_acquire);
    for (unsigned i = 0; i < end; ++i)
      if (const int fd = streams_[i].fd.load(std::memory_order_acquire) - 1; fd >= 0)
        visit(streams_[i], fd);
  }
  // nullptr: it is not looked at here.
  WatchedStream* find(int fd);
  // Is another than `fd` wanted with this data?
  bool has_other_with(uint64_t data, int fd) {
    bool has = false;
    each([&](WatchedStream& w, int watched) {
      has |= watched != fd && w.is_wanted.load(std::memory_order_relaxed) &&
             w.data.load(std::memory_order_relaxed) == data;
    });
    return has;
  }
  // Or `most`, if it is that many.
  int count_wanted(int most);

  // Where a look begins, so that each has its turn where there is not room for all.
  unsigned first() const { return first_.load(std::memory_order_relaxed); }
  void begin_at(unsigned place) { first_.store(place, std::memory_order_relaxed); }

  // A free place, which counts from now on. nullptr: all are taken.
  WatchedStream* take_place();
  // Has a stream found no place since the table was empty?
  bool is_too_small() const { return is_too_small_.load(std::memory_order_relaxed); }
  // Frees all. Who is refused the hold may do so too.
  void clear();
  // As in a new table, whatever has been left in it.
  void clear_unseen();

 private:
  std::atomic<unsigned> end_, first_;
  std::atomic<bool> is_too_small_;
  std::array<WatchedStream, kMost> streams_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_STREAM_TABLE_H_
