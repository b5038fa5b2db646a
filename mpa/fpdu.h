// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One FPDU without Markers in one contiguous buffer (RFC 5044 sections 4.1 and 4.4): the hot path,
// all inline and without state. Everything else (gather lists, Markers, any segmentation) is
// framer.h and deframer.h.
//
// To send: the caller leaves room, and writes the ULPDU between the two calls:
//
//   uint8_t* ulpdu = write_header(buffer, ulpdu_length);
//   ...  // ulpdu_length bytes at `ulpdu`
//   finish_fpdu({buffer, fpdu_size(ulpdu_length)}, ulpdu_length, has_crc);
//
// To receive: once kHeaderSize bytes are there, size_at() says how many the whole FPDU has.
#ifndef DDPSOCK_MPA_FPDU_H_
#define DDPSOCK_MPA_FPDU_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "mpa/format.h"

namespace ddpsock::mpa {

inline constexpr size_t kHeaderSize = MPA_ULPDU_LENGTH_SIZE;

// Zero octets after the ULPDU.
constexpr size_t pad_size(size_t ulpdu_length) {
  return (0 - (kHeaderSize + ulpdu_length)) & (MPA_ALIGNMENT - 1);
}

// Length field, ULPDU, pad and CRC word, which is there also when CRCs are off. A multiple of four.
constexpr size_t fpdu_size(size_t ulpdu_length) {
  return ((kHeaderSize + ulpdu_length + MPA_ALIGNMENT - 1) & ~size_t{MPA_ALIGNMENT - 1}) +
         MPA_CRC_SIZE;
}

// The largest ULPDU whose FPDU, started on a segment boundary, fills one TCP segment of `emss`
// octets at most (RFC 5044 section 5). EMSS moves with TCP options and path MTU: read it per burst.
// Never below 128, as the RFC demands, even if that takes two segments; never above what
// ULPDU_Length and FPDUPTR can say.
constexpr uint16_t mulpdu(size_t emss, bool has_markers) {
  size_t overhead = kHeaderSize + MPA_CRC_SIZE + emss % MPA_ALIGNMENT;
  if (has_markers)
    overhead += MPA_MARKER_SIZE * ((emss + MPA_MARKER_INTERVAL - 1) / MPA_MARKER_INTERVAL);
  const size_t most = has_markers ? MPA_MAX_ULPDU_WITH_MARKERS : MPA_MAX_ULPDU;
  if (emss < overhead + MPA_MIN_MULPDU) return MPA_MIN_MULPDU;
  return static_cast<uint16_t>(emss - overhead < most ? emss - overhead : most);
}

// Writes the length field; returns the place of the ULPDU.
inline uint8_t* write_header(uint8_t* fpdu, uint16_t ulpdu_length) {
  return base::store_be16(fpdu, ulpdu_length);
}

// Writes pad and CRC word. REQUIRES: fpdu.size() == fpdu_size(ulpdu_length), header and ULPDU
// written.
inline void finish_fpdu(MutBytes fpdu, uint16_t ulpdu_length, bool has_crc) {
  assert(fpdu.size() == fpdu_size(ulpdu_length));
  // One store clears the pad whatever its size: it never reaches past the CRC word.
  base::store_le32(fpdu.data() + kHeaderSize + ulpdu_length, 0);
  const size_t covered = fpdu.size() - MPA_CRC_SIZE;
  base::store_le32(fpdu.data() + covered, has_crc ? base::crc32c(fpdu.first(covered)) : 0);
}

// REQUIRES: kHeaderSize readable bytes at `fpdu`.
inline uint16_t ulpdu_length_at(const uint8_t* fpdu) {
  return base::load_be16(fpdu);
}
inline size_t size_at(const uint8_t* fpdu) {
  return fpdu_size(ulpdu_length_at(fpdu));
}

// REQUIRES: fpdu.size() == size_at(fpdu.data()).
inline Bytes ulpdu_of(Bytes fpdu) {
  return fpdu.subspan(kHeaderSize, ulpdu_length_at(fpdu.data()));
}

// Whether the CRC word is right. Call it only if CRCs were agreed on; otherwise the word means
// nothing. REQUIRES: fpdu.size() == size_at(fpdu.data()).
inline bool is_crc_right(Bytes fpdu) {
  const size_t covered = fpdu.size() - MPA_CRC_SIZE;
  return base::crc32c(fpdu.first(covered)) == base::load_le32(fpdu.data() + covered);
}

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_FPDU_H_
