// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/segmenter.h"

#include <algorithm>
#include <cassert>

namespace ddpsock::ddp {

Segment Segmenter::next(uint32_t mulpdu) {
  assert(!is_done_ && mulpdu > DDP_MAX_HEADER_SIZE);
  const bool tagged = std::holds_alternative<TaggedHeader>(header_);
  Segment out;
  out.header_length = tagged ? DDP_TAGGED_HEADER_SIZE : DDP_UNTAGGED_HEADER_SIZE;

  const uint64_t left = payload_.total() - offset_;
  const uint64_t n = std::min<uint64_t>(left, mulpdu - out.header_length);
  out.is_last = n == left;
  out.payload = payload_.cut(offset_, n);

  if (tagged) {
    TaggedHeader h = std::get<TaggedHeader>(header_);
    h.is_last = out.is_last;
    h.to += offset_;
    write_header(out.header_storage.data(), h);
  } else {
    UntaggedHeader h = std::get<UntaggedHeader>(header_);
    h.is_last = out.is_last;
    h.mo += offset_;
    write_header(out.header_storage.data(), h);
  }
  offset_ += static_cast<uint32_t>(n);
  is_done_ = out.is_last;
  return out;
}

}  // namespace ddpsock::ddp
