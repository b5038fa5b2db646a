// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// From segments to the pieces of memory that one gather write sends: many FPDUs at a time, payload
// where it lies. Sans-IO. Only gather() and taken()'s result concern the queue pair's lock; CRCs
// are computed outside it.
#ifndef DDPSOCK_ENGINE_WIRE_TRANSMITTER_H_
#define DDPSOCK_ENGINE_WIRE_TRANSMITTER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "ddp/segmenter.h"
#include "mpa/framer.h"
#include "rdmap/qp.h"

namespace ddpsock::engine {

class Transmitter {
 public:
  // One batch: FPDUs of one gather write, and the pieces they may take (Linux: at most 1024).
  static constexpr uint32_t kMaxFpdus = 32;
  static constexpr uint32_t kMaxPieces = 1024;

  // The one allocation; has_memory() tells whether it worked.
  Transmitter();
  bool has_memory() const { return batch_ != nullptr; }
  // What was agreed, before the first FPDU.
  void configure(bool has_crc, bool has_markers);

  // Everything gathered has been taken.
  bool is_empty() const { return first_piece_ == piece_count_; }

  // Takes segments of at most `mulpdu` bytes from `core` until about `budget` bytes; whether there
  // were any. REQUIRES: is_empty(), the lock.
  bool gather(rdmap::Qp& core, uint32_t mulpdu, uint32_t budget);
  // Frames what gather() took. The lock is not needed: memory in segments stays put until taken.
  void frame();

  // What is to be sent, in order.
  std::span<const Bytes> pieces() const;
  // The lower layer took the first `octets` of pieces(). How many FPDUs are wholly sent by that, to
  // be told to Qp::segments_sent().
  uint32_t taken(size_t octets);

 private:
  // An FPDU up to this size is written to one place: one piece for many small FPDUs, which the
  // kernel copies faster than a gather list of as many bytes.
  static constexpr uint32_t kMaxContiguous = 512;
  static constexpr size_t kScratchSize = size_t{kMaxFpdus} * kMaxContiguous;

  struct Batch {
    std::array<ddp::Segment, kMaxFpdus> segments;
    std::array<uint32_t, kMaxFpdus> sizes;  // of the FPDUs
    std::array<Bytes, kMaxPieces> pieces;
    std::array<uint8_t, kScratchSize> scratch;
  };

  bool has_room(uint32_t mulpdu, uint32_t fpdus) const;
  void frame_contiguous(const ddp::Segment& s, uint32_t i);
  void frame_gathered(const ddp::Segment& s, uint32_t i);
  void append(Bytes piece);

  std::unique_ptr<Batch> batch_;
  mpa::GatherFramer framer_{true, false};
  bool has_crc_ = true;
  bool has_markers_ = false;
  uint32_t fpdu_count_ = 0;
  uint32_t first_fpdu_ = 0;  // not wholly sent yet
  uint32_t sent_of_first_ = 0;
  uint32_t piece_count_ = 0;
  uint32_t first_piece_ = 0;
  size_t scratch_used_ = 0;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_WIRE_TRANSMITTER_H_
