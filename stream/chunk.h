// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One chunk of stream: an RDMAP Send of one DDP segment in one FPDU (RFC 5044 section 4, RFC 5041
// section 4.3, RFC 5040 section 4.3), contiguous and without markers. The stream engine's hot path
// deals in nothing else; every other FPDU takes the slow path through the cores.
#ifndef DDPSOCK_STREAM_CHUNK_H_
#define DDPSOCK_STREAM_CHUNK_H_

#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "ddp/format.h"
#include "mpa/fpdu.h"
#include "rdmap/format.h"

namespace ddpsock::engine {

inline constexpr uint32_t kChunkHeader = MPA_ULPDU_LENGTH_SIZE + DDP_UNTAGGED_HEADER_SIZE;
inline constexpr uint32_t kMaxTrailer = MPA_MAX_PAD + MPA_CRC_SIZE;
inline constexpr uint32_t kMaxChunkPayload = MPA_MAX_ULPDU - DDP_UNTAGGED_HEADER_SIZE;  // 65,517
inline constexpr uint32_t kMaxFpdu = mpa::fpdu_size(MPA_MAX_ULPDU);
// Between our own peers: a multiple of 64, because the CRC runs a quarter faster on aligned data,
// and small enough that 64 KB of stream need not end in a short chunk.
inline constexpr uint32_t kPreferredPayload = 61'440;
static_assert(kPreferredPayload % 64 == 0 && kPreferredPayload <= kMaxChunkPayload);

constexpr uint32_t fpdu_size(uint32_t ulpdu) {
  return static_cast<uint32_t>(mpa::fpdu_size(ulpdu));
}
constexpr uint32_t chunk_size(uint32_t payload) {
  return fpdu_size(DDP_UNTAGGED_HEADER_SIZE + payload);
}
constexpr uint32_t chunk_pad(uint32_t payload) {
  return static_cast<uint32_t>(mpa::pad_size(DDP_UNTAGGED_HEADER_SIZE + payload));
}
static_assert(kChunkHeader == 20 && chunk_size(0) == 24 && chunk_size(64) == 88 &&
              chunk_size(1) == 28);

// A chunk's header as two and a half words: length, control bytes and RsvdULP (0); QN (0) and MSN;
// MO (0).
inline constexpr uint64_t kChunkControl =
    uint64_t{DDP_CTRL_LAST | DDP_VERSION} << 40 | uint64_t{RDMAP_CTRL_IETF | RDMAP_OP_SEND} << 32;
inline constexpr uint64_t kLengthMask = uint64_t{0xffff} << 48;

// Writes the 20 header bytes of a chunk and returns the byte after them.
inline uint8_t* write_chunk_header(uint8_t* p, uint32_t payload, uint32_t msn) {
  p = base::store_be64(p, uint64_t{DDP_UNTAGGED_HEADER_SIZE + payload} << 48 | kChunkControl);
  p = base::store_be64(p, uint64_t{RDMAP_QN_SEND} << 32 | msn);
  return base::store_be32(p, 0);
}

// REQUIRES: 20 bytes at `p`. Is this the chunk with sequence number `msn`? (Reserved DDP bits set
// by a stranger make it take the slow path, which ignores them as RFC 5041 section 4.1 asks.)
inline bool is_chunk(const uint8_t* p, uint32_t msn) {
  return (base::load_be64(p) & ~kLengthMask) == kChunkControl &&
         base::load_be64(p + 8) == (uint64_t{RDMAP_QN_SEND} << 32 | msn) &&
         base::load_be32(p + 16) == 0 && base::load_be16(p) >= DDP_UNTAGGED_HEADER_SIZE;
}

// Writes pad and CRC word at `p` (after the payload); `crc` covers header and payload. The word is
// there also without CRC (RFC 5044 section 4.4). Returns the byte after them.
inline uint8_t* write_trailer(uint8_t* p, uint32_t pad, uint32_t crc, bool has_crc) {
  std::memset(p, 0, 3);
  if (has_crc) crc = base::crc32c_extend(crc, {p, pad});
  return base::store_le32(p + pad, has_crc ? crc : 0);
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_CHUNK_H_
