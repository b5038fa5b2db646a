// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Cuts one DDP message into segments, RFC 5041 section 5.2: MO or TO advances, L is set on the last
// segment only, and a message without bytes is exactly one segment. No byte of payload is copied.
#ifndef DDPSOCK_DDP_SEGMENTER_H_
#define DDPSOCK_DDP_SEGMENTER_H_

#include <array>
#include <cstdint>
#include <span>
#include <variant>

#include "base/bytes.h"
#include "ddp/segment.h"
#include "ddp/slices.h"

namespace ddpsock::ddp {

// One ULPDU: the DDP header, then the payload slices. The slices point into the memory that the
// message was made from and stay valid as long as that does.
struct Segment {
  std::array<uint8_t, DDP_MAX_HEADER_SIZE> header_storage;
  uint32_t header_length = 0;
  GatherList payload;
  bool is_last = false;

  Bytes header() const { return Bytes(header_storage).first(header_length); }
  // What the LLP counts: header and payload.
  uint32_t ulpdu_length() const { return header_length + static_cast<uint32_t>(payload.total()); }
};

class Segmenter {
 public:
  // A finished one: is_done() from the start.
  Segmenter() = default;
  // `first` is the header of the first segment (mo or to of the first byte); is_last is ignored.
  // REQUIRES: payload.total() < 2^32.
  Segmenter(const UntaggedHeader& first, const GatherList& payload)
      : header_(first), payload_(payload), is_done_(false) {}
  Segmenter(const TaggedHeader& first, const GatherList& payload)
      : header_(first), payload_(payload), is_done_(false) {}

  bool is_done() const { return is_done_; }
  // Payload bytes already handed out.
  uint32_t offset() const { return offset_; }

  // The next segment, at most `mulpdu` bytes of ULPDU; the MULPDU may differ from call to call.
  // REQUIRES: !is_done() and mulpdu > DDP_MAX_HEADER_SIZE (RFC 5044 keeps it at 128 or more).
  Segment next(uint32_t mulpdu);

 private:
  std::variant<UntaggedHeader, TaggedHeader> header_;
  GatherList payload_;
  uint32_t offset_ = 0;
  bool is_done_ = true;
};

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_SEGMENTER_H_
