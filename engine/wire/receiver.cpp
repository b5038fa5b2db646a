// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wire/receiver.h"

#include <algorithm>

namespace ddpsock::engine {
namespace {

constexpr mpa::Deframer::HeaderRule kDdpHeader{
    .mask = DDP_CTRL_TAGGED,
    .size_if_set = DDP_TAGGED_HEADER_SIZE,
    .size_if_clear = DDP_UNTAGGED_HEADER_SIZE,
};

mpa::Deframer make_deframer(bool has_crc, bool has_markers) {
  return mpa::Deframer({.has_crc = has_crc, .has_markers = has_markers, .header_rule = kDdpHeader});
}

}  // namespace

Receiver::Receiver() : deframer_(make_deframer(true, false)) {}

void Receiver::configure(bool has_crc, bool has_markers) {
  deframer_ = make_deframer(has_crc, has_markers);
  has_crc_ = has_crc;
}

std::span<const MutBytes> Receiver::targets(MutBytes spill) {
  direct_ = 0;
  size_t count = 0;
  if (open_ && !open_->is_discarded) {
    const mpa::Deframer::Want want = deframer_.want();
    if (want.part == mpa::Deframer::Part::kPayload && want.octets >= kMinDirect) {
      const ddp::ScatterList places = open_->spans.cut(payload_done_, want.octets);
      for (MutBytes r : places.ranges()) targets_[count++] = r;
      direct_ = want.octets;
      // Large FPDUs come in rows: stop after the next header, so that the next payload, too, is
      // read to its place.
      const size_t next_header =
          deframer_.octets_left() - direct_ + mpa::kHeaderSize + DDP_MAX_HEADER_SIZE;
      spill = spill.first(std::min(spill.size(), next_header));
    }
  }
  targets_[count++] = spill;
  return std::span<const MutBytes>(targets_).first(count);
}

void Receiver::took(size_t octets, MutBytes spill) {
  size_t direct = std::min(octets, direct_);
  spilled_ = Bytes(spill).first(octets - direct);
  for (MutBytes r : targets_) {
    if (direct == 0) break;
    const size_t n = std::min(direct, r.size());
    deframer_.placed(Bytes(r).first(n));
    payload_done_ += static_cast<uint32_t>(n);
    direct -= n;
  }
}

void Receiver::consume(rdmap::Qp& core, Bytes more) {
  take(core, spilled_);
  spilled_ = {};
  take(core, more);
}

void Receiver::take(rdmap::Qp& core, Bytes input) {
  while (!is_dead_) {
    const mpa::Deframer::Step step = deframer_.step(input);
    input = input.subspan(step.taken);
    switch (step.event) {
      case mpa::Deframer::Event::kNeedMore:
        return;
      case mpa::Deframer::Event::kHeader:
        on_header(core);
        break;
      case mpa::Deframer::Event::kPayload:
        on_payload(step.payload, step.payload_offset);
        break;
      case mpa::Deframer::Event::kComplete:
        on_complete(core);
        break;
      case mpa::Deframer::Event::kError:
        on_error(core);
        break;
    }
  }
}

void Receiver::on_header(rdmap::Qp& core) {
  payload_done_ = 0;
  const auto placement =
      core.place(deframer_.header(), static_cast<uint32_t>(deframer_.ulpdu_length()));
  // On an error the Terminate is under way and the rest of this ULPDU is of no interest; but later
  // ones keep coming and are discarded one by one.
  if (placement) open_ = *placement;
}

void Receiver::on_payload(Bytes payload, uint32_t offset) {
  payload_done_ = offset + static_cast<uint32_t>(payload.size());
  if (!open_ || open_->is_discarded) return;
  const ddp::ScatterList places = open_->spans.cut(offset, payload.size());
  for (MutBytes r : places.ranges()) {
    std::copy_n(payload.begin(), r.size(), r.begin());
    payload = payload.subspan(r.size());
  }
}

void Receiver::on_complete(rdmap::Qp& core) {
  if (has_crc_) core.counters().crcs_checked.add(1);
  if (!open_) return;
  open_.reset();
  core.segment_placed();
}

void Receiver::on_error(rdmap::Qp& core) {
  is_dead_ = true;
  if (open_) {
    open_.reset();
    core.segment_spoilt();
  }
  core.terminate(rdmap::TermCode::mpa(mpa::to_term_code(deframer_.error())));
}

rdmap::LlpEnd Receiver::end(rdmap::Qp& core) {
  const bool was_dead = is_dead_;
  is_dead_ = true;
  const bool is_between = was_dead || deframer_.end() == mpa::DeframerError::kNone;
  if (open_) {
    open_.reset();
    core.segment_spoilt();
  }
  return is_between ? rdmap::LlpEnd::kFinBetween : rdmap::LlpEnd::kFinInside;
}

}  // namespace ddpsock::engine
