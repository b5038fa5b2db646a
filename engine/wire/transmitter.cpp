// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wire/transmitter.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "mpa/fpdu.h"

namespace ddpsock::engine {
namespace {

constexpr size_t kUlpduPieces = ddp::kMaxSlices + 1;  // header and slices

}  // namespace

Transmitter::Transmitter() : batch_(new(std::nothrow) Batch) {}

void Transmitter::configure(bool has_crc, bool has_markers) {
  has_crc_ = has_crc;
  has_markers_ = has_markers;
  framer_ = mpa::GatherFramer(has_crc, has_markers);
}

// Whether one more FPDU of up to `mulpdu` fits, whatever the `fpdus` before it turned out to be.
bool Transmitter::has_room(uint32_t mulpdu, uint32_t fpdus) const {
  const size_t pieces = mpa::GatherFramer::pieces_bound(mulpdu, kUlpduPieces, has_markers_);
  const size_t scratch = std::max<size_t>(
      kMaxContiguous, DDP_MAX_HEADER_SIZE + mpa::GatherFramer::scratch_bound(mulpdu, has_markers_));
  return fpdus < kMaxFpdus && (fpdus + 1) * pieces <= kMaxPieces &&
         (fpdus + 1) * scratch <= kScratchSize;
}

bool Transmitter::gather(rdmap::Qp& core, uint32_t mulpdu, uint32_t budget) {
  assert(is_empty());
  fpdu_count_ = first_fpdu_ = sent_of_first_ = piece_count_ = first_piece_ = 0;
  scratch_used_ = 0;
  uint32_t octets = 0;
  while (octets < budget && has_room(mulpdu, fpdu_count_) &&
         core.next_segment(mulpdu, batch_->segments[fpdu_count_])) {
    octets += batch_->segments[fpdu_count_++].ulpdu_length();
  }
  return fpdu_count_ != 0;
}

void Transmitter::frame() {
  for (uint32_t i = 0; i < fpdu_count_; ++i) {
    const ddp::Segment& s = batch_->segments[i];
    if (!has_markers_ && mpa::fpdu_size(s.ulpdu_length()) <= kMaxContiguous) {
      frame_contiguous(s, i);
    } else {
      frame_gathered(s, i);
    }
  }
}

void Transmitter::frame_contiguous(const ddp::Segment& s, uint32_t i) {
  const auto length = static_cast<uint16_t>(s.ulpdu_length());
  const MutBytes fpdu = MutBytes(batch_->scratch).subspan(scratch_used_, mpa::fpdu_size(length));
  uint8_t* p = mpa::write_header(fpdu.data(), length);
  p = std::copy(s.header().begin(), s.header().end(), p);
  for (const Bytes& r : s.payload.ranges()) p = std::copy(r.begin(), r.end(), p);
  mpa::finish_fpdu(fpdu, length, has_crc_);
  scratch_used_ += fpdu.size();
  batch_->sizes[i] = static_cast<uint32_t>(fpdu.size());
  append(fpdu);
}

void Transmitter::frame_gathered(const ddp::Segment& s, uint32_t i) {
  std::array<Bytes, kUlpduPieces> ulpdu;
  ulpdu[0] = s.header();
  const auto slices = s.payload.ranges();
  std::copy(slices.begin(), slices.end(), ulpdu.begin() + 1);
  const auto framed = framer_.frame(std::span(ulpdu).first(1 + slices.size()),
                                    MutBytes(batch_->scratch).subspan(scratch_used_),
                                    std::span(batch_->pieces).subspan(piece_count_));
  assert(framed);  // gather() left room
  scratch_used_ += framed->scratch_size;
  batch_->sizes[i] = static_cast<uint32_t>(framed->size);
  piece_count_ += static_cast<uint32_t>(framed->piece_count);
}

void Transmitter::append(Bytes piece) {
  if (piece_count_ != 0) {
    Bytes& last = batch_->pieces[piece_count_ - 1];
    if (last.data() + last.size() == piece.data()) {
      last = {last.data(), last.size() + piece.size()};
      return;
    }
  }
  batch_->pieces[piece_count_++] = piece;
}

std::span<const Bytes> Transmitter::pieces() const {
  return std::span<const Bytes>(batch_->pieces).subspan(first_piece_, piece_count_ - first_piece_);
}

uint32_t Transmitter::taken(size_t octets) {
  for (size_t left = octets; left != 0;) {
    Bytes& piece = batch_->pieces[first_piece_];
    const size_t n = std::min(left, piece.size());
    piece = piece.subspan(n);
    left -= n;
    if (piece.empty()) ++first_piece_;
  }
  uint32_t whole = 0;
  for (size_t left = octets; left != 0;) {
    const size_t n = std::min<size_t>(left, batch_->sizes[first_fpdu_] - sent_of_first_);
    sent_of_first_ += static_cast<uint32_t>(n);
    left -= n;
    if (sent_of_first_ != batch_->sizes[first_fpdu_]) break;
    sent_of_first_ = 0;
    ++first_fpdu_;
    ++whole;
  }
  return whole;
}

}  // namespace ddpsock::engine
