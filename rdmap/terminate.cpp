// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/terminate.h"

#include <algorithm>
#include <cassert>

#include "ddp/segment.h"

namespace ddpsock::rdmap {
namespace {

struct Name {
  TermCode code;
  const char* text;
};

// RFC 5040 figure 9, RFC 5044 section 8, RFC 6581 section 9.2; DDP's come from ddp::to_string.
constexpr Name kNames[] = {
    {TermCode::protection(RDMAP_ECODE_INVALID_STAG), "RDMA: remote protection error: invalid STag"},
    {TermCode::protection(RDMAP_ECODE_BASE_BOUNDS),
     "RDMA: remote protection error: base or bounds violation"},
    {TermCode::protection(RDMAP_ECODE_ACCESS_RIGHTS),
     "RDMA: remote protection error: access rights violation"},
    {TermCode::protection(RDMAP_ECODE_STAG_NOT_ASSOCIATED),
     "RDMA: remote protection error: STag not associated with the stream"},
    {TermCode::protection(RDMAP_ECODE_TO_WRAP), "RDMA: remote protection error: TO wrap"},
    {TermCode::protection(RDMAP_ECODE_CANNOT_INVALIDATE),
     "RDMA: remote protection error: STag cannot be invalidated"},
    {TermCode::protection(RDMAP_ECODE_UNSPECIFIED), "RDMA: remote protection error: unspecified"},
    {TermCode::operation(RDMAP_ECODE_VERSION), "RDMA: remote operation error: invalid version"},
    {TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE),
     "RDMA: remote operation error: unexpected opcode"},
    {TermCode::operation(RDMAP_ECODE_CATASTROPHIC_STREAM),
     "RDMA: remote operation error: catastrophic, this stream"},
    {TermCode::operation(RDMAP_ECODE_CATASTROPHIC_GLOBAL),
     "RDMA: remote operation error: catastrophic, global"},
    {TermCode::operation(RDMAP_ECODE_CANNOT_INVALIDATE),
     "RDMA: remote operation error: STag cannot be invalidated"},
    {TermCode::operation(RDMAP_ECODE_UNSPECIFIED), "RDMA: remote operation error: unspecified"},
    {TermCode::mpa(RDMAP_ECODE_MPA_CLOSED), "MPA: connection closed, terminated or lost"},
    {TermCode::mpa(RDMAP_ECODE_MPA_CRC), "MPA: CRC error"},
    {TermCode::mpa(RDMAP_ECODE_MPA_MARKER), "MPA: marker and length disagree"},
    {TermCode::mpa(RDMAP_ECODE_MPA_STARTUP), "MPA: invalid request or reply frame"},
    {TermCode::mpa(RDMAP_ECODE_MPA_LOCAL), "MPA: local catastrophic error"},
    {TermCode::mpa(RDMAP_ECODE_MPA_IRD), "MPA: insufficient IRD resources"},
    {TermCode::mpa(RDMAP_ECODE_MPA_RTR), "MPA: no matching RTR option"},
};

constexpr ddp::Error kDdpErrors[] = {
    ddp::Error::kInvalidStag, ddp::Error::kBaseOrBounds,   ddp::Error::kStagNotAssociated,
    ddp::Error::kToWrap,      ddp::Error::kTaggedVersion,  ddp::Error::kInvalidQn,
    ddp::Error::kNoBuffer,    ddp::Error::kMsnRange,       ddp::Error::kInvalidMo,
    ddp::Error::kTooLong,     ddp::Error::kUntaggedVersion};

const ddp::Error* find_ddp(TermCode c) {
  if (c.layer != RDMAP_LAYER_DDP) return nullptr;
  const auto* it = std::find_if(std::begin(kDdpErrors), std::end(kDdpErrors),
                                [&](ddp::Error e) { return TermCode::ddp(e) == c; });
  return it == std::end(kDdpErrors) ? nullptr : it;
}

bool is_local_catastrophic(TermCode c) {
  return (c.layer == RDMAP_LAYER_RDMA && c.etype == RDMAP_ETYPE_LOCAL_CATASTROPHIC) ||
         (c.layer == RDMAP_LAYER_DDP && c.etype == DDP_ETYPE_LOCAL_CATASTROPHIC &&
          c.code == DDP_ECODE_LOCAL_CATASTROPHIC);
}

bool is_defined(TermCode c) {
  if (is_local_catastrophic(c) || find_ddp(c)) return true;
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const Name& n) { return n.code == c; });
}

constexpr unsigned kSwappedM = 0x01;
constexpr unsigned kSwappedD = 0x02;
constexpr unsigned kSwappedR = 0x04;

// Without flags the two forms look alike: take the one whose code is defined, and if both are, the
// one that belongs to this phase of the connection.
bool is_swapped_without_flags(TermCode rfc, TermCode swapped, Phase phase) {
  if (!is_defined(swapped)) return false;
  if (!is_defined(rfc)) return true;
  const bool is_llp_wanted = phase == Phase::kStartUp;
  const bool is_rfc_llp = rfc.layer == RDMAP_LAYER_LLP;
  const bool is_swapped_llp = swapped.layer == RDMAP_LAYER_LLP;
  if (is_rfc_llp == is_swapped_llp) return false;
  return is_swapped_llp == is_llp_wanted;
}

}  // namespace

const char* to_string(TermCode c) {
  for (const Name& n : kNames) {
    if (n.code == c) return n.text;
  }
  if (const ddp::Error* e = find_ddp(c)) return ddp::to_string(*e);
  if (is_local_catastrophic(c)) return "local catastrophic error";
  return "unknown error";
}

std::optional<size_t> encode(MutBytes out, const Terminate& t) {
  const bool has_header = t.ddp_header_length != 0;
  size_t size = RDMAP_TERM_CONTROL_SIZE;
  if (has_header) size += RDMAP_TERM_SEGMENT_LENGTH_SIZE + t.ddp_header_length;
  if (t.has_read_request) size += RDMAP_READ_REQUEST_SIZE;
  if (out.size() < size) return std::nullopt;

  uint8_t* p = out.data();
  *p++ = static_cast<uint8_t>(t.code.layer << 4 | t.code.etype);
  *p++ = t.code.code;
  *p++ = static_cast<uint8_t>((has_header && t.segment_length ? RDMAP_TERM_M : 0u) |
                              (has_header ? RDMAP_TERM_D : 0u) |
                              (t.has_read_request ? RDMAP_TERM_R : 0u));
  *p++ = 0;
  if (has_header) {
    p = base::store_be16(p, t.segment_length.value_or(0));
    p = std::copy_n(t.ddp_header.begin(), t.ddp_header_length, p);
  }
  if (t.has_read_request) p = std::copy(t.read_request.begin(), t.read_request.end(), p);
  assert(p == out.data() + size);
  return size;
}

std::optional<DecodedTerminate> decode_terminate(Bytes body, Phase phase) {
  if (body.size() < RDMAP_TERM_CONTROL_SIZE) return std::nullopt;
  const uint8_t first = body[RDMAP_TERM_LAYER_ETYPE_OFFSET];
  const uint8_t code = body[RDMAP_TERM_CODE_OFFSET];
  const unsigned flags = body[RDMAP_TERM_FLAGS_OFFSET];
  const uint8_t high = first >> 4;
  const uint8_t low = first & 0x0f;
  const TermCode rfc{high, low, code};
  const TermCode swapped{low, high, code};

  const bool has_rfc_flags = (flags & (RDMAP_TERM_M | RDMAP_TERM_D | RDMAP_TERM_R)) != 0;
  const bool has_swapped_flags = (flags & (kSwappedM | kSwappedD | kSwappedR)) != 0;
  DecodedTerminate out;
  out.is_swapped =
      !has_rfc_flags && (has_swapped_flags || is_swapped_without_flags(rfc, swapped, phase));
  out.terminate.code = out.is_swapped ? swapped : rfc;
  const bool has_length = (flags & (out.is_swapped ? kSwappedM : RDMAP_TERM_M)) != 0;
  const bool has_header = (flags & (out.is_swapped ? kSwappedD : RDMAP_TERM_D)) != 0;
  const bool has_request = (flags & (out.is_swapped ? kSwappedR : RDMAP_TERM_R)) != 0;

  Bytes rest = body.subspan(RDMAP_TERM_CONTROL_SIZE);
  if (has_length || has_header) {
    if (rest.size() < RDMAP_TERM_SEGMENT_LENGTH_SIZE) return std::nullopt;
    if (has_length) out.terminate.segment_length = base::load_be16(rest.data());
    rest = rest.subspan(RDMAP_TERM_SEGMENT_LENGTH_SIZE);
  }
  if (has_header) {
    if (rest.empty()) return std::nullopt;
    const uint32_t n = ddp::header_size(rest[0]);
    if (rest.size() < n) return std::nullopt;
    std::copy_n(rest.begin(), n, out.terminate.ddp_header.begin());
    out.terminate.ddp_header_length = static_cast<uint8_t>(n);
    rest = rest.subspan(n);
  }
  if (has_request) {
    if (rest.size() < RDMAP_READ_REQUEST_SIZE) return std::nullopt;
    std::copy_n(rest.begin(), RDMAP_READ_REQUEST_SIZE, out.terminate.read_request.begin());
    out.terminate.has_read_request = true;
  }
  return out;
}

}  // namespace ddpsock::rdmap
