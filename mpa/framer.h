// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Frames a ULPDU that lies in several places into an FPDU that lies in several places, without
// copying it (RFC 5044 sections 4.1, 4.3 and 4.4). With or without CRC, with or without Markers.
// For a ULPDU in one buffer and no Markers, fpdu.h is quicker.
#ifndef DDPSOCK_MPA_FRAMER_H_
#define DDPSOCK_MPA_FRAMER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "mpa/fpdu.h"
#include "mpa/marker.h"

namespace ddpsock::mpa {

enum class FramerError : uint8_t {
  kUlpduTooLong,     // above max_ulpdu(): our bug or the ULP's; segment it
  kScratchTooShort,  // give at least scratch_bound()
  kTooFewPieces,     // give at least pieces_bound()
};

// One direction of one stream. A plain value; not thread-safe.
class GatherFramer {
 public:
  struct Framed {
    size_t size;          // of the whole FPDU, Markers included
    size_t piece_count;   // of `pieces`, from its front
    size_t scratch_size;  // of `scratch`, from its front
  };

  GatherFramer(bool has_crc, bool has_markers) : has_crc_(has_crc), clock_(has_markers) {}

  uint16_t max_ulpdu() const {
    return clock_.has_markers() ? MPA_MAX_ULPDU_WITH_MARKERS : MPA_MAX_ULPDU;
  }

  // Upper bounds for one FPDU of `ulpdu_length`, wherever the stream stands.
  static constexpr size_t scratch_bound(size_t ulpdu_length, bool has_markers) {
    return kHeaderSize + MPA_MAX_PAD + MPA_CRC_SIZE +
           MPA_MARKER_SIZE * marker_bound(ulpdu_length, has_markers);
  }
  static constexpr size_t pieces_bound(size_t ulpdu_length, size_t ulpdu_pieces, bool has_markers) {
    return ulpdu_pieces + 2 + 2 * marker_bound(ulpdu_length, has_markers);
  }

  // Lays one FPDU out: fills `pieces`, to be sent in order, with views of `ulpdu`'s buffers and of
  // `scratch`, where header, Markers, pad and CRC are written. All of these belong to the caller
  // and must stay as they are until the FPDU is sent. Neighbours in memory become one piece, and
  // several FPDUs can share one scratch and one piece list by passing what the last call left.
  //
  // On success the stream stands after this FPDU: all of it must be sent, or the stream is lost. On
  // failure nothing happened.
  Result<Framed, FramerError> frame(std::span<const Bytes> ulpdu, MutBytes scratch,
                                    std::span<Bytes> pieces);

 private:
  static constexpr size_t marker_bound(size_t ulpdu_length, bool has_markers) {
    return has_markers ? 1 + fpdu_size(ulpdu_length) / MPA_MARKER_SPACING : 0;
  }

  bool has_crc_;
  MarkerClock clock_;
};

}  // namespace ddpsock::mpa

#endif  // DDPSOCK_MPA_FRAMER_H_
