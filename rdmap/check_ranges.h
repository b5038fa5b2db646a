// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RDMAP_CHECK_RANGES_H_
#define DDPSOCK_RDMAP_CHECK_RANGES_H_

#include <cstdint>
#include <limits>
#include <span>

#include "ddp/slices.h"
#include "rdmap/work.h"

namespace ddpsock::rdmap {

// Whether one message can be gathered from or scattered to these.
template <typename Range>
Refusal check_ranges(std::span<const Range> ranges) {
  uint64_t total = 0;
  uint32_t count = 0;
  for (const Range& r : ranges) {
    total += r.size();
    if (r.size() > std::numeric_limits<uint32_t>::max() ||
        total > std::numeric_limits<uint32_t>::max()) {
      return Refusal::kTooLong;
    }
    if (!r.empty()) ++count;
  }
  return count > ddp::kMaxSlices ? Refusal::kTooManySlices : Refusal::kNone;
}

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_CHECK_RANGES_H_
