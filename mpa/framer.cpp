// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/framer.h"

#include <array>
#include <cassert>

namespace ddpsock::mpa {
namespace {

// Writes one FPDU's octets in stream order. All sizes were checked before.
class Layout {
 public:
  Layout(MarkerClock clock, bool has_crc, MutBytes scratch, std::span<Bytes> pieces)
      : clock_(clock), has_crc_(has_crc), scratch_(scratch), pieces_(pieces) {}

  // Octets of the ULPDU: borrowed, not copied.
  void refer(Bytes octets) {
    while (!octets.empty()) {
      if (clock_.is_due()) put_marker();
      const size_t n = clock_.run(octets.size());
      append(octets.first(n));
      clock_.advance(n);
      octets = octets.subspan(n);
    }
  }

  // Our own octets. REQUIRES: no Marker falls inside, which alignment sees to.
  void copy(Bytes octets) {
    if (octets.empty()) return;
    if (clock_.is_due()) put_marker();
    refer(keep(octets));
  }

  void put_length(uint16_t ulpdu_length) {
    // A Marker in front of the length field points at it with FPDUPTR 0 (RFC 5044 section 4.3).
    if (clock_.is_due()) put_marker();
    marker_base_ = size_;
    std::array<uint8_t, kHeaderSize> field;
    base::store_be16(field.data(), ulpdu_length);
    copy(field);
  }

  void put_crc() {
    // A Marker just before the CRC word is covered by it.
    if (clock_.is_due()) put_marker();
    std::array<uint8_t, MPA_CRC_SIZE> word;
    base::store_le32(word.data(), has_crc_ ? crc_ : 0);
    copy(word);
  }

  GatherFramer::Framed framed() const { return {size_, piece_count_, scratch_used_}; }
  MarkerClock clock() const { return clock_; }

 private:
  void put_marker() {
    std::array<uint8_t, MPA_MARKER_SIZE> marker{};
    base::store_be16(marker.data() + MPA_MARKER_FPDUPTR_OFFSET,
                     static_cast<uint16_t>(size_ - marker_base_));
    append(keep(marker));
    clock_.pass_marker();
  }

  Bytes keep(Bytes octets) {
    const size_t at = scratch_used_;
    for (uint8_t octet : octets) scratch_[scratch_used_++] = octet;
    return scratch_.subspan(at, octets.size());
  }

  void append(Bytes octets) {
    if (has_crc_) crc_ = base::crc32c_extend(crc_, octets);
    size_ += octets.size();
    if (piece_count_ > 0) {
      Bytes& last = pieces_[piece_count_ - 1];
      if (last.data() + last.size() == octets.data()) {
        last = Bytes(last.data(), last.size() + octets.size());
        return;
      }
    }
    pieces_[piece_count_++] = octets;
  }

  MarkerClock clock_;
  bool has_crc_;
  MutBytes scratch_;
  std::span<Bytes> pieces_;
  uint32_t crc_ = base::kCrc32cInit;
  size_t size_ = 0;
  size_t marker_base_ = 0;  // where the length field starts
  size_t piece_count_ = 0;
  size_t scratch_used_ = 0;
};

}  // namespace

Result<GatherFramer::Framed, FramerError> GatherFramer::frame(std::span<const Bytes> ulpdu,
                                                              MutBytes scratch,
                                                              std::span<Bytes> pieces) {
  size_t length = 0;
  size_t ulpdu_pieces = 0;
  for (Bytes piece : ulpdu) {
    if (piece.size() > max_ulpdu() - length) return fail(FramerError::kUlpduTooLong);
    length += piece.size();
    ulpdu_pieces += !piece.empty();
  }
  const size_t markers = clock_.count(fpdu_size(length));
  const size_t pad = pad_size(length);
  if (scratch.size() < kHeaderSize + pad + MPA_CRC_SIZE + markers * MPA_MARKER_SIZE)
    return fail(FramerError::kScratchTooShort);
  if (pieces.size() < ulpdu_pieces + 2 + 2 * markers) return fail(FramerError::kTooFewPieces);

  Layout layout(clock_, has_crc_, scratch, pieces);
  layout.put_length(static_cast<uint16_t>(length));
  for (Bytes piece : ulpdu) layout.refer(piece);
  constexpr std::array<uint8_t, MPA_MAX_PAD> kZeros{};
  layout.copy(Bytes(kZeros).first(pad));
  layout.put_crc();
  assert(layout.framed().size == fpdu_size(length) + markers * MPA_MARKER_SIZE);
  clock_ = layout.clock();
  return layout.framed();
}

}  // namespace ddpsock::mpa
