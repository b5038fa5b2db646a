// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/shared_receives.h"

#include "rdmap/check_ranges.h"

namespace ddpsock::rdmap {

Posted SharedReceives::post(std::span<const RecvWr> work) {
  Posted out;
  for (const RecvWr& wr : work) {
    out.reason = is_closed_.load()    ? Refusal::kBadState
                 : entries_.is_full() ? Refusal::kQueueFull
                                      : check_ranges(wr.buffer);
    if (out.reason == Refusal::kNone && cq_.reserve() == 0) out.reason = Refusal::kCqFull;
    if (out.reason != Refusal::kNone) break;
    const ddp::PostPlaces place = entries_.claim(1);
    if (place.count == 0) {
      cq_.release();
      out.reason = Refusal::kQueueFull;
      break;
    }
    entries_.at(place, 0) = {.id = wr.id, .buffer = ddp::ScatterList(wr.buffer)};
    entries_.publish(place, 0);
    ++out.accepted;
  }
  return out;
}

void SharedReceives::close() {
  is_closed_.store(true);
  entries_.take_in();
  while (!entries_.is_empty()) {
    entries_.pop();
    cq_.release();
  }
}

std::optional<SharedReceives::Receive> SharedReceives::take() {
  entries_.take_in();
  if (entries_.is_empty()) return std::nullopt;
  const Receive taken = entries_.front();
  entries_.pop();
  note_size();
  return taken;
}

void SharedReceives::note_size() {
  if (limit_ == 0) return;
  entries_.take_in();
  if (entries_.size() >= limit_) return;
  limit_ = 0;
  has_event_ = true;
}

}  // namespace ddpsock::rdmap
