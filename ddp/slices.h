// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A short list of byte ranges that together hold one message: where its bytes come from (gather) or
// go to (scatter). Holds no bytes; what it points at belongs to whoever posted it.
#ifndef DDPSOCK_DDP_SLICES_H_
#define DDPSOCK_DDP_SLICES_H_

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "base/bytes.h"

namespace ddpsock::ddp {

// Ranges one message may be gathered from or scattered to.
inline constexpr uint32_t kMaxSlices = 8;

template <typename Range>
class Slices {
 public:
  // Lists are made and copied several times a message and mostly hold one range: nothing is written
  // but what is used.
  Slices() {}  // NOLINT: leaves ranges_ as they are
  Slices(const Slices& o) : count_(o.count_), total_(o.total_) { copy_ranges(o); }
  Slices& operator=(const Slices& o) {
    if (this == &o) return *this;
    count_ = o.count_;
    total_ = o.total_;
    copy_ranges(o);
    return *this;
  }
  ~Slices() = default;

  // REQUIRES: at most kMaxSlices ranges. Empty ones are skipped.
  explicit Slices(std::span<const Range> ranges) {
    for (const Range& r : ranges) append(r);
  }

  // REQUIRES: room, unless `r` is empty.
  void append(Range r) {
    if (r.empty()) return;
    assert(count_ < kMaxSlices);
    set(count_++, r);
    total_ += r.size();
  }

  uint64_t total() const { return total_; }
  bool is_empty() const { return total_ == 0; }
  std::span<const Range> ranges() const { return {ranges_, count_}; }

  // The `length` bytes that begin `offset` bytes into this list.
  // REQUIRES: offset + length <= total().
  Slices cut(uint64_t offset, uint64_t length) const {
    assert(offset + length <= total_);
    Slices out;
    for (uint32_t i = 0; i < count_ && length != 0; ++i) {
      const Range& r = ranges_[i];
      if (offset >= r.size()) {
        offset -= r.size();
        continue;
      }
      const uint64_t n = std::min<uint64_t>(length, r.size() - offset);
      out.append(r.subspan(offset, n));
      length -= n;
      offset = 0;
    }
    return out;
  }

 private:
  static_assert(std::is_trivially_copyable_v<Range> && std::is_trivially_destructible_v<Range>);
  void set(uint32_t i, Range r) { std::construct_at(&ranges_[i], r); }
  void copy_ranges(const Slices& o) {
    for (uint32_t i = 0; i < o.count_; ++i) set(i, o.ranges_[i]);
  }

  uint32_t count_ = 0;
  uint64_t total_ = 0;
  union {
    Range
        ranges_[kMaxSlices];  // the first count_ of them; last, so that the rest is seldom touched
  };
};

using GatherList = Slices<Bytes>;
using ScatterList = Slices<MutBytes>;

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_SLICES_H_
