// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The front of the FPDU that is coming in: its length field and the header of its ULPDU, gathered
// in pieces of any size. How long it is shows only on the way. A plain value, which the deframer
// keeps from one FPDU to the next.
#ifndef DDPSOCK_MPA_FPDU_HEAD_H_
#define DDPSOCK_MPA_FPDU_HEAD_H_

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "mpa/deframer_error.h"
#include "mpa/fpdu.h"

namespace ddpsock::mpa {

inline constexpr size_t kMaxUlpduHeader = 32;

// How many octets at the front of a ULPDU are header: it depends on one bit of the first octet,
// which is how DDP tells tagged (14) from untagged (18). With a mask both sizes are at least 1,
// without one size_if_clear holds for all. {} gives the whole ULPDU as payload.
struct HeaderRule {
  uint8_t mask = 0;
  uint8_t size_if_set = 0;    // at most kMaxUlpduHeader
  uint8_t size_if_clear = 0;  // at most kMaxUlpduHeader
  constexpr size_t size(uint8_t first) const {
    return (first & mask) != 0 ? size_if_set : size_if_clear;
  }
  constexpr size_t least() const {
    return mask != 0 && size_if_set < size_if_clear ? size_if_set : size_if_clear;
  }
};

class FpduHead {
 public:
  // REQUIRES: `rule` as it says of itself.
  FpduHead(HeaderRule rule, uint16_t max_ulpdu) : rule_(rule), max_ulpdu_(max_ulpdu) {
    assert(rule.size_if_set <= kMaxUlpduHeader && rule.size_if_clear <= kMaxUlpduHeader);
    assert(rule.mask == 0 || rule.least() > 0);
  }

  // Whether size() is all of it; until then it is how much must come before learn() tells more.
  bool is_known() const { return is_known_; }
  uint32_t size() const { return size_; }
  // It will be no shorter.
  size_t least() const {
    return is_known_ ? size_ : std::max<size_t>(size_, kHeaderSize + rule_.least());
  }

  // The octets from `at` on. REQUIRES: at + octets.size() <= size().
  void put(size_t at, Bytes octets) {
    std::memcpy(octets_.data() + at, octets.data(), octets.size());
  }
  // Reads what has come. An error ends the stream. REQUIRES: size() octets are there, !is_known().
  DeframerError learn() {
    // The length field first, then the octet that says how long the header is.
    if (size_ > kHeaderSize) return set_header_size(rule_.size(octets_[kHeaderSize]));
    ulpdu_length_ = ulpdu_length_at(octets_.data());
    if (ulpdu_length_ > max_ulpdu_) return DeframerError::kTooLong;
    if (ulpdu_length_ < rule_.least()) return DeframerError::kTooShort;
    if (rule_.mask == 0) return set_header_size(rule_.size_if_clear);
    size_ = kHeaderSize + 1;
    return DeframerError::kNone;
  }
  // Those of the first `have` that it has not given out yet: for the CRC.
  Bytes take_uncovered(size_t have) {
    const size_t from = covered_;
    covered_ = static_cast<uint8_t>(std::min<size_t>(have, size_));
    return Bytes(octets_).subspan(from, covered_ - from);
  }

  // Of the FPDU whose head was known last, until more is put.
  size_t ulpdu_length() const { return ulpdu_length_; }
  Bytes header() const { return Bytes(octets_).subspan(kHeaderSize, header_size_); }

  void begin_next() {
    size_ = kHeaderSize;
    covered_ = 0;
    is_known_ = false;
  }

 private:
  DeframerError set_header_size(size_t size) {
    if (ulpdu_length_ < size) return DeframerError::kTooShort;
    header_size_ = static_cast<uint8_t>(size);
    size_ = static_cast<uint8_t>(kHeaderSize + size);
    is_known_ = true;
    return DeframerError::kNone;
  }

  HeaderRule rule_;
  bool is_known_ = false;
  uint16_t max_ulpdu_;
  uint16_t ulpdu_length_ = 0;
  uint8_t header_size_ = 0;
  uint8_t size_ = kHeaderSize;
  uint8_t covered_ = 0;
  std::array<uint8_t, kHeaderSize + kMaxUlpduHeader> octets_{};
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_FPDU_HEAD_H_
