// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/loopback/segment_carrier.h"

#include <algorithm>
#include <cerrno>

namespace ddpsock::engine::loopback {
namespace {

void place(rdmap::Qp& core, const Arrival& arrival) {
  const Bytes ulpdu(arrival.ulpdu);
  const auto placement =
      core.place(ulpdu.first(std::min<size_t>(ulpdu.size(), DDP_MAX_HEADER_SIZE)),
                 static_cast<uint32_t>(ulpdu.size()));
  if (!placement) return;
  Bytes payload = ulpdu.subspan(placement->header_length);
  if (!placement->is_discarded) {
    for (MutBytes r : placement->spans.ranges()) {
      std::copy_n(payload.begin(), r.size(), r.begin());
      payload = payload.subspan(r.size());
    }
  }
  if (!arrival.is_spoilt) return core.segment_placed();
  core.segment_spoilt();
  core.terminate(TermCode::mpa(RDMAP_ECODE_MPA_CRC));
}

}  // namespace

Received SegmentCarrier::receive(Pass& pass) {
  if (!pass.budget.may_be_readable || pass.is_fin_received) return {};
  for (;;) {
    const auto arrival = link_.take(end_, pass.now);
    if (!arrival) return {.turn = to_int(arrival.error()) == EAGAIN ? Turn::kIdle : Turn::kLost};
    if (!*arrival) return {.end = rdmap::LlpEnd::kFinBetween};
    place(pass.core, **arrival);
  }
}

Turn SegmentCarrier::transmit(Pass& pass) {
  while (!pass.is_fin_sent) {
    if (held_.empty()) {
      ddp::Segment s;
      if (!pass.core.next_segment(mulpdu_, s)) return Turn::kIdle;
      held_.assign(s.header().begin(), s.header().end());
      for (Bytes r : s.payload.ranges()) held_.insert(held_.end(), r.begin(), r.end());
    }
    const auto given = link_.give(end_, held_, pass.now);
    if (!given) return to_int(given.error()) == EAGAIN ? Turn::kBlocked : Turn::kLost;
    held_.clear();
    pass.core.segments_sent(1);
  }
  return Turn::kIdle;
}

void SegmentCarrier::add_to(Need& need, Turn sent, const Pass&) {
  need.wants_writable = sent == Turn::kBlocked;
  need.deadline = std::min(need.deadline, link_.next_arrival(end_));
}

}  // namespace ddpsock::engine::loopback
