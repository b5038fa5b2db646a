// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RDMAP_ARRIVED_HEADER_H_
#define DDPSOCK_RDMAP_ARRIVED_HEADER_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "ddp/segment.h"
#include "rdmap/terminate.h"

namespace ddpsock::rdmap {

// A copy of the DDP header of the ULPDU that came last: a Terminate for that repeats it (RFC 5040
// section 4.8).
class ArrivedHeader {
 public:
  // `front`: of the ULPDU, at least its DDP header unless it is shorter than that.
  void take(Bytes front, uint32_t ulpdu_length) {
    ulpdu_length_ = ulpdu_length;
    size_ = 0;
    if (front.empty() || ulpdu_length == 0) return;
    const uint32_t size = ddp::header_size(front[0]);
    if (front.size() < size || ulpdu_length < size) return;
    std::copy_n(front.begin(), size, bytes_.begin());
    size_ = size;
  }

  // Empty when the ULPDU was shorter than its header.
  Bytes bytes() const { return Bytes(bytes_).first(size_); }
  uint32_t payload_length() const { return ulpdu_length_ - size_; }

  // The Terminate for an error in this ULPDU, with the Read Request in it, if it is one.
  Terminate terminate(TermCode code, Bytes read_request) const;

 private:
  std::array<uint8_t, DDP_MAX_HEADER_SIZE> bytes_{};
  uint32_t size_ = 0;
  uint32_t ulpdu_length_ = 0;
};

}  // namespace ddpsock::rdmap

#endif  // DDPSOCK_RDMAP_ARRIVED_HEADER_H_
