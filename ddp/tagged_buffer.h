// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A tagged buffer and the arithmetic of placing into it, RFC 5041 section 7.1. Whose it is and who
// may use it is the ULP's business (rdmap/stag_table.h).
#ifndef DDPSOCK_DDP_TAGGED_BUFFER_H_
#define DDPSOCK_DDP_TAGGED_BUFFER_H_

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "ddp/error.h"

namespace ddpsock::ddp {

struct TaggedBuffer {
  uint64_t base_to = 0;  // the TO of the first byte
  MutBytes memory;
};

// The `length` bytes at `to`. A zero-length range is never checked (section 5.2) and yields no
// bytes.
//   kToWrap        to + length does not fit in 64 bits
//   kBaseOrBounds  some byte lies outside the buffer
inline Result<MutBytes, Error> locate(const TaggedBuffer& b, uint64_t to, uint32_t length) {
  if (length == 0) return MutBytes{};
  if (to + length < to) return fail(Error::kToWrap);
  if (to < b.base_to || to - b.base_to > b.memory.size() ||
      b.memory.size() - (to - b.base_to) < length) {
    return fail(Error::kBaseOrBounds);
  }
  return b.memory.subspan(to - b.base_to, length);
}

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_TAGGED_BUFFER_H_
