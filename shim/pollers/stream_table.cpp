// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/pollers/stream_table.h"

namespace ddpsock::shim {

WatchedStream* StreamTable::find(int fd) {
  if (fd < 0) return nullptr;
  const unsigned end = this->end();
  for (unsigned i = 0; i < end; ++i)
    if (streams_[i].fd.load(std::memory_order_acquire) - 1 == fd) return &streams_[i];
  return nullptr;
}

int StreamTable::count_wanted(int most) {
  const unsigned end = this->end();
  int count = 0;
  for (unsigned i = 0; i < end && count < most; ++i) {
    const WatchedStream& w = streams_[i];
    if (w.fd.load(std::memory_order_acquire) > 0 && w.is_wanted.load(std::memory_order_relaxed))
      ++count;
  }
  return count;
}

WatchedStream* StreamTable::take_place() {
  for (unsigned i = 0; i < kMost; ++i) {
    if (streams_[i].fd.load(std::memory_order_relaxed) != 0) continue;
    if (end_.load(std::memory_order_relaxed) <= i) end_.store(i + 1, std::memory_order_release);
    return &streams_[i];
  }
  is_too_small_.store(true, std::memory_order_relaxed);
  return nullptr;
}

void StreamTable::clear() {
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i) streams_[i].free();
  end_.store(0, std::memory_order_relaxed);
  is_too_small_.store(false, std::memory_order_relaxed);
}

void StreamTable::clear_unseen() {
  for (WatchedStream& w : streams_) w.free();
  end_.store(0, std::memory_order_relaxed);
  is_too_small_.store(false, std::memory_order_relaxed);
}

}  // namespace ddpsock::shim
