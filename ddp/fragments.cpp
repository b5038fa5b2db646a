// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/fragments.h"

#include <algorithm>
#include <cassert>
#include <new>

namespace ddpsock::ddp {

Fragments::Fragments(uint32_t capacity)
    : held_(new(std::nothrow) Held[capacity]), capacity_(held_ ? capacity : 0) {}

Fragments::Novelty Fragments::novelty(uint32_t message, uint32_t prefix, ByteRange range) const {
  if (range.end <= prefix || range.begin == range.end) return Novelty::kKnown;
  if (range.begin < prefix) return Novelty::kPartial;
  for (uint32_t i = 0; i < size_; ++i) {
    const Held& h = held_[i];
    if (h.message != message) continue;
    // Ranges of one message never touch each other here, so only one can cover all of it.
    if (h.range.begin <= range.begin && range.end <= h.range.end) return Novelty::kKnown;
    if (h.range.begin < range.end && range.begin < h.range.end) return Novelty::kPartial;
  }
  return Novelty::kNew;
}

uint32_t Fragments::insert(uint32_t message, uint32_t prefix, ByteRange range) {
  if (range.begin == range.end) return prefix;
  for (uint32_t i = 0; i < size_;) {
    const Held& h = held_[i];
    if (h.message != message || h.range.end < range.begin || range.end < h.range.begin) {
      ++i;
      continue;
    }
    range.begin = std::min(range.begin, h.range.begin);
    range.end = std::max(range.end, h.range.end);
    // A wider range may touch some that were passed over already.
    erase(i);
    i = 0;
  }
  if (range.begin <= prefix) return std::max(prefix, range.end);
  assert(size_ < capacity_);
  held_[size_++] = {message, range};
  return prefix;
}

uint32_t Fragments::highest_end(uint32_t message) const {
  uint32_t end = 0;
  for (uint32_t i = 0; i < size_; ++i) {
    if (held_[i].message == message) end = std::max(end, held_[i].range.end);
  }
  return end;
}

void Fragments::forget(uint32_t message) {
  for (uint32_t i = 0; i < size_;) {
    if (held_[i].message == message) {
      erase(i);
    } else {
      ++i;
    }
  }
}

}  // namespace ddpsock::ddp
