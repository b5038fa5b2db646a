// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/deframer.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace ddpsock::mpa {
namespace {

void scatter(Bytes payload, size_t offset, std::span<const MutBytes> places) {
  for (MutBytes place : places) {
    if (payload.empty()) return;
    if (offset >= place.size()) {
      offset -= place.size();
      continue;
    }
    const size_t n = std::min(payload.size(), place.size() - offset);
    std::memcpy(place.data() + offset, payload.data(), n);
    payload = payload.subspan(n);
    offset = 0;
  }
  assert(payload.empty());
}

}  // namespace

Deframer::Deframer(const Options& options)
    : has_crc_(options.has_crc),
      clock_(options.has_markers),
      head_(options.header_rule,
            options.has_markers ? std::min<uint16_t>(options.max_ulpdu, MPA_MAX_ULPDU_WITH_MARKERS)
                                : options.max_ulpdu) {}

Deframer::Step Deframer::step(Bytes input) {
  size_t taken = 0;
  for (;;) {
    if (error_ != DeframerError::kNone) return {Event::kError, taken, {}, 0};
    if (head_.is_known() && !is_header_given_ && done_ == head_.size()) {
      is_header_given_ = true;
      return {Event::kHeader, taken, {}, 0};
    }
    const Bytes rest = input.subspan(taken);
    if (rest.empty()) return {Event::kNeedMore, taken, {}, 0};
    if (clock_.is_due()) {
      taken += take_marker(rest);
    } else if (done_ < head_.size()) {
      taken += take_head(rest);
    } else if (done_ < ulpdu_end()) {
      const size_t n = clock_.run(std::min(rest.size(), ulpdu_end() - done_));
      const uint32_t offset = done_ - head_.size();
      placed(rest.first(n));
      return {Event::kPayload, taken + n, rest.first(n), offset};
    } else {
      taken += take_trailer(rest);
      if (done_ == fpdu_size(ulpdu_length()) && complete()) return {Event::kComplete, taken, {}, 0};
    }
  }
}

Deframer::Step Deframer::step(Bytes input, std::span<const MutBytes> places) {
  size_t taken = 0;
  for (;;) {
    Step s = step(input.subspan(taken));
    taken += s.taken;
    if (s.event != Event::kPayload) {
      s.taken = taken;
      return s;
    }
    scatter(s.payload, s.payload_offset, places);
  }
}

Deframer::Want Deframer::want() const {
  if (error_ != DeframerError::kNone) return {Part::kOverhead, 0};
  if (done_ < head_.least()) return {Part::kOverhead, with_markers(head_.least() - done_)};
  if (done_ >= ulpdu_end()) return {Part::kOverhead, octets_left()};
  if (clock_.is_due()) return {Part::kOverhead, size_t{MPA_MARKER_SIZE} - marker_done_};
  return {Part::kPayload, clock_.run(ulpdu_end() - done_)};
}

void Deframer::placed(Bytes payload) {
  assert(done_ >= head_.size() && done_ + payload.size() <= ulpdu_end() && !clock_.is_due());
  if (has_crc_) crc_ = base::crc32c_extend(crc_, payload);
  advance(payload.size());
}

size_t Deframer::octets_left() const {
  return head_.is_known() ? with_markers(fpdu_size(ulpdu_length()) - done_) : 0;
}

DeframerError Deframer::end() {
  if (error_ == DeframerError::kNone && !is_between_fpdus()) error_ = DeframerError::kTruncated;
  return error_;
}

// The octets of stream in which the next `n` octets that are no Marker come.
size_t Deframer::with_markers(size_t n) const {
  return n + clock_.count(n) * MPA_MARKER_SIZE - marker_done_;
}

size_t Deframer::take_marker(Bytes input) {
  const size_t n = std::min(input.size(), size_t{MPA_MARKER_SIZE} - marker_done_);
  std::memcpy(marker_.data() + marker_done_, input.data(), n);
  marker_done_ = static_cast<uint8_t>(marker_done_ + n);
  seen_ += static_cast<uint32_t>(n);
  if (marker_done_ < MPA_MARKER_SIZE) return n;
  marker_done_ = 0;
  clock_.pass_marker();
  cover_head();
  if (has_crc_) crc_ = base::crc32c_extend(crc_, marker_);
  if (done_ == 0) length_at_ = MPA_MARKER_SIZE;
  const size_t back = done_ == 0 ? 0 : seen_ - MPA_MARKER_SIZE - length_at_;
  if (base::load_be16(marker_.data() + MPA_MARKER_FPDUPTR_OFFSET) != back)
    error_ = DeframerError::kBadMarker;
  return n;
}

size_t Deframer::take_head(Bytes input) {
  const size_t n = clock_.run(std::min<size_t>(input.size(), head_.size() - done_));
  head_.put(done_, input.first(n));
  advance(n);
  if (done_ == head_.size() && !head_.is_known()) error_ = head_.learn();
  if (done_ == head_.size() && head_.is_known()) cover_head();
  return n;
}

size_t Deframer::take_trailer(Bytes input) {
  const size_t crc_at = fpdu_size(ulpdu_length()) - MPA_CRC_SIZE;
  if (done_ < crc_at) {
    const size_t n = clock_.run(std::min(input.size(), crc_at - done_));
    if (has_crc_) crc_ = base::crc32c_extend(crc_, input.first(n));
    advance(n);
    return n;
  }
  const size_t have = done_ - crc_at;
  const size_t n = std::min(input.size(), MPA_CRC_SIZE - have);
  std::memcpy(crc_word_.data() + have, input.data(), n);
  advance(n);
  return n;
}

// One call for length and header together, instead of one for each piece that arrived.
void Deframer::cover_head() {
  const Bytes fresh = head_.take_uncovered(done_);
  if (has_crc_ && !fresh.empty()) crc_ = base::crc32c_extend(crc_, fresh);
}

void Deframer::advance(size_t n) {
  done_ += static_cast<uint32_t>(n);
  seen_ += static_cast<uint32_t>(n);
  clock_.advance(n);
}

bool Deframer::complete() {
  if (has_crc_ && crc_ != base::load_le32(crc_word_.data())) {
    error_ = DeframerError::kBadCrc;
    return false;
  }
  done_ = 0;
  seen_ = 0;
  crc_ = base::kCrc32cInit;
  length_at_ = 0;
  head_.begin_next();
  is_header_given_ = false;
  return true;
}

}  // namespace ddpsock::mpa
