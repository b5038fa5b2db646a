// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// DDP segment headers, RFC 5041 section 4. A view proves that the bytes are there; the value it
// yields holds host-order fields. Encoders write exactly the header and nothing of the payload.
// Everything is inline: a header is a few loads and stores.
#ifndef DDPSOCK_DDP_SEGMENT_H_
#define DDPSOCK_DDP_SEGMENT_H_

#include <cassert>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "ddp/error.h"
#include "ddp/format.h"

namespace ddpsock::ddp {

// RsvdULP of an untagged segment: 40 bits, opaque to DDP. A tagged one has only `control`.
struct RsvdUlp {
  uint8_t control = 0;
  uint32_t word = 0;
  bool operator==(const RsvdUlp&) const = default;
};

struct TaggedHeader {
  bool is_last = false;
  uint8_t rsvd_ulp = 0;
  uint32_t stag = 0;
  uint64_t to = 0;
  bool operator==(const TaggedHeader&) const = default;
};

struct UntaggedHeader {
  bool is_last = false;
  RsvdUlp rsvd_ulp = {};
  uint32_t qn = 0;
  uint32_t msn = 0;
  uint32_t mo = 0;
  bool operator==(const UntaggedHeader&) const = default;
};

constexpr bool is_tagged(uint8_t control) {
  return (control & DDP_CTRL_TAGGED) != 0;
}

// Bytes of DDP header that follow from the first byte of a ULPDU.
constexpr uint32_t header_size(uint8_t control) {
  return is_tagged(control) ? DDP_TAGGED_HEADER_SIZE : DDP_UNTAGGED_HEADER_SIZE;
}

// A tagged segment whose header is known to be complete, tagged and of our version. Borrows the
// bytes.
class TaggedView {
 public:
  // `ulpdu` begins with the DDP header; more may follow. Reserved bits are not looked at.
  //   kLocalCatastrophic  fewer bytes than a header, or T is clear
  //   kTaggedVersion      DV is not 1
  static Result<TaggedView, Error> parse(Bytes ulpdu) {
    if (ulpdu.size() < DDP_TAGGED_HEADER_SIZE || !is_tagged(ulpdu[0])) {
      return fail(Error::kLocalCatastrophic);
    }
    if ((ulpdu[0] & DDP_CTRL_DV_MASK) != DDP_VERSION) return fail(Error::kTaggedVersion);
    return TaggedView(ulpdu);
  }

  bool is_last() const { return (bytes_[0] & DDP_CTRL_LAST) != 0; }
  uint8_t rsvd_ulp() const { return bytes_[DDP_TAGGED_RSVDULP_OFFSET]; }
  uint32_t stag() const { return base::load_be32(&bytes_[DDP_TAGGED_STAG_OFFSET]); }
  uint64_t to() const { return base::load_be64(&bytes_[DDP_TAGGED_TO_OFFSET]); }
  Bytes header() const { return bytes_.first(DDP_TAGGED_HEADER_SIZE); }
  Bytes after_header() const { return bytes_.subspan(DDP_TAGGED_HEADER_SIZE); }
  TaggedHeader value() const { return {is_last(), rsvd_ulp(), stag(), to()}; }

 private:
  explicit TaggedView(Bytes b) : bytes_(b) {}
  Bytes bytes_;
};

// An untagged segment whose header is known to be complete, untagged and of our version.
class UntaggedView {
 public:
  //   kLocalCatastrophic  fewer bytes than a header, or T is set
  //   kUntaggedVersion    DV is not 1
  static Result<UntaggedView, Error> parse(Bytes ulpdu) {
    if (ulpdu.size() < DDP_UNTAGGED_HEADER_SIZE || is_tagged(ulpdu[0])) {
      return fail(Error::kLocalCatastrophic);
    }
    if ((ulpdu[0] & DDP_CTRL_DV_MASK) != DDP_VERSION) return fail(Error::kUntaggedVersion);
    return UntaggedView(ulpdu);
  }

  bool is_last() const { return (bytes_[0] & DDP_CTRL_LAST) != 0; }
  RsvdUlp rsvd_ulp() const {
    return {bytes_[DDP_UNTAGGED_RSVDULP_OFFSET],
            base::load_be32(&bytes_[DDP_UNTAGGED_RSVDULP_WORD_OFFSET])};
  }
  uint32_t qn() const { return base::load_be32(&bytes_[DDP_UNTAGGED_QN_OFFSET]); }
  uint32_t msn() const { return base::load_be32(&bytes_[DDP_UNTAGGED_MSN_OFFSET]); }
  uint32_t mo() const { return base::load_be32(&bytes_[DDP_UNTAGGED_MO_OFFSET]); }
  Bytes header() const { return bytes_.first(DDP_UNTAGGED_HEADER_SIZE); }
  Bytes after_header() const { return bytes_.subspan(DDP_UNTAGGED_HEADER_SIZE); }
  UntaggedHeader value() const { return {is_last(), rsvd_ulp(), qn(), msn(), mo()}; }

 private:
  explicit UntaggedView(Bytes b) : bytes_(b) {}
  Bytes bytes_;
};

// REQUIRES: DDP_TAGGED_HEADER_SIZE bytes at `p`. Returns the byte after the header.
inline uint8_t* write_header(uint8_t* p, const TaggedHeader& h) {
  p[DDP_CTRL_OFFSET] =
      static_cast<uint8_t>(DDP_CTRL_TAGGED | (h.is_last ? DDP_CTRL_LAST : 0u) | DDP_VERSION);
  p[DDP_TAGGED_RSVDULP_OFFSET] = h.rsvd_ulp;
  base::store_be32(p + DDP_TAGGED_STAG_OFFSET, h.stag);
  return base::store_be64(p + DDP_TAGGED_TO_OFFSET, h.to);
}

// REQUIRES: DDP_UNTAGGED_HEADER_SIZE bytes at `p`. Returns the byte after the header.
inline uint8_t* write_header(uint8_t* p, const UntaggedHeader& h) {
  p[DDP_CTRL_OFFSET] = static_cast<uint8_t>((h.is_last ? DDP_CTRL_LAST : 0u) | DDP_VERSION);
  p[DDP_UNTAGGED_RSVDULP_OFFSET] = h.rsvd_ulp.control;
  base::store_be32(p + DDP_UNTAGGED_RSVDULP_WORD_OFFSET, h.rsvd_ulp.word);
  base::store_be32(p + DDP_UNTAGGED_QN_OFFSET, h.qn);
  base::store_be32(p + DDP_UNTAGGED_MSN_OFFSET, h.msn);
  return base::store_be32(p + DDP_UNTAGGED_MO_OFFSET, h.mo);
}

// Bounds-checked forms: bytes written, or nothing when `out` is shorter than the header.
inline std::optional<size_t> encode(MutBytes out, const TaggedHeader& h) {
  if (out.size() < DDP_TAGGED_HEADER_SIZE) return std::nullopt;
  [[maybe_unused]] const uint8_t* end = write_header(out.data(), h);
  assert(end == out.data() + DDP_TAGGED_HEADER_SIZE);
  return DDP_TAGGED_HEADER_SIZE;
}
inline std::optional<size_t> encode(MutBytes out, const UntaggedHeader& h) {
  if (out.size() < DDP_UNTAGGED_HEADER_SIZE) return std::nullopt;
  [[maybe_unused]] const uint8_t* end = write_header(out.data(), h);
  assert(end == out.data() + DDP_UNTAGGED_HEADER_SIZE);
  return DDP_UNTAGGED_HEADER_SIZE;
}

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_SEGMENT_H_
