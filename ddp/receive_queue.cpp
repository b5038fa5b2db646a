// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/receive_queue.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace ddpsock::ddp {

ReceiveQueue::ReceiveQueue(uint32_t depth, uint32_t max_fragments, LlpOrder order)
    : slots_(depth),
      fragments_(max_fragments),
      order_(order),
      wanted_depth_(depth),
      wanted_fragments_(max_fragments) {}

bool ReceiveQueue::has_memory() const {
  return slots_.has_memory_for(wanted_depth_) && fragments_.capacity() >= wanted_fragments_;
}

bool ReceiveQueue::post(uint64_t cookie, const ScatterList& buffer) {
  if (buffer.total() > std::numeric_limits<uint32_t>::max()) return false;
  const PostPlaces place = slots_.claim(1);
  if (place.count == 0) return false;
  fill(place, 0, cookie, buffer);
  return true;
}

void ReceiveQueue::fill(const PostPlaces& places, uint32_t i, uint64_t cookie,
                        const ScatterList& buffer) {
  Slot& s = slots_.at(places, i);
  s.clear();
  s.cookie = cookie;
  s.buffer = buffer;
  s.has_buffer = true;
  slots_.publish(places, i);
}

void ReceiveQueue::fill_without_buffer(const PostPlaces& places, uint32_t i) {
  slots_.at(places, i).clear();
  slots_.publish(places, i);
}

bool ReceiveQueue::wants_buffer(uint32_t msn) const {
  const uint32_t ahead = msn - first_msn_;  // modulo 2^32
  if (order_ == LlpOrder::kInOrder && ahead != 0) return false;
  if (ahead < slots_.size()) return !slots_[ahead].has_buffer;
  return ahead < slots_.capacity();
}

void ReceiveQueue::assign(uint32_t msn, uint64_t cookie, const ScatterList& buffer) {
  assert(wants_buffer(msn));
  const uint32_t ahead = msn - first_msn_;
  while (slots_.size() <= ahead) {
    fill_without_buffer(slots_.claim(1), 0);
    slots_.take_in();
  }
  Slot& s = slots_[ahead];
  s.cookie = cookie;
  s.buffer = buffer;
  s.has_buffer = true;
}

Result<uint32_t, Error> ReceiveQueue::slot_of(uint32_t msn) const {
  const uint32_t ahead = msn - first_msn_;  // modulo 2^32
  if (ahead < slots_.size() && slots_[ahead].has_buffer) return ahead;
  if (ahead >= 0x8000'0000u) return fail(Error::kMsnRange);
  return fail(Error::kNoBuffer);
}

Result<void, Error> ReceiveQueue::check_extent(const Slot& s, const UntaggedHeader& h,
                                               uint32_t length) const {
  const uint64_t end = uint64_t{h.mo} + length;
  if (s.has_end && (end > s.end || (h.is_last && end != s.end))) return fail(Error::kInvalidMo);
  if (h.is_last && std::max(s.prefix, fragments_.highest_end(h.msn)) > end) {
    return fail(Error::kInvalidMo);
  }
  return {};
}

Result<Located, Error> ReceiveQueue::locate(const UntaggedHeader& h, uint32_t length, Into into) {
  const Result<uint32_t, Error> at = slot_of(h.msn);
  if (!at) {
    if (order_ == LlpOrder::kAnyOrder && at.error() == Error::kMsnRange) return Located{{}, true};
    return fail(at.error());
  }
  if (order_ == LlpOrder::kInOrder && *at != 0) return fail(Error::kMsnRange);

  Slot& s = slots_[*at];
  const uint64_t room = into == Into::kAside ? kAsideSize : s.buffer.total();
  if (h.mo > room) return fail(Error::kInvalidMo);
  if (length > room - h.mo) return fail(Error::kTooLong);
  if (const Result<void, Error> ok = check_extent(s, h, length); !ok) return fail(ok.error());

  const ByteRange range{h.mo, h.mo + length};
  const Fragments::Novelty novelty = fragments_.novelty(h.msn, s.prefix, range);
  if (order_ == LlpOrder::kInOrder) {
    // Repeated bytes, or a last segment that leaves a gap behind it: the sender is broken.
    if (length != 0 && novelty != Fragments::Novelty::kNew) return fail(Error::kInvalidMo);
    if (h.is_last && h.mo != s.prefix) {
      return fail(Error::kInvalidMo);
    }
  }
  if (!fragments_.has_room_for(s.prefix, range)) return fail(Error::kLocalCatastrophic);
  if (length != 0 && novelty == Fragments::Novelty::kKnown) return Located{{}, true};

  Located out;
  if (into == Into::kAside) {
    out.spans.append(MutBytes(s.aside).subspan(h.mo, length));
  } else {
    out.spans = s.buffer.cut(h.mo, length);
  }
  return out;
}

std::optional<RsvdUlp> ReceiveQueue::known_rsvd_ulp(uint32_t msn) const {
  const Result<uint32_t, Error> at = slot_of(msn);
  if (!at || !slots_[*at].has_rsvd_ulp) return std::nullopt;
  return slots_[*at].rsvd_ulp;
}

void ReceiveQueue::note_placed(const UntaggedHeader& h, uint32_t length) {
  const Result<uint32_t, Error> at = slot_of(h.msn);
  if (!at) return;  // a repeat of something delivered
  Slot& s = slots_[*at];
  s.prefix = fragments_.insert(h.msn, s.prefix, {h.mo, h.mo + length});
  s.rsvd_ulp = h.rsvd_ulp;
  s.has_rsvd_ulp = true;
  if (h.is_last) {
    s.end = h.mo + length;
    s.has_end = true;
  }
}

std::optional<Delivered> ReceiveQueue::deliver() {
  if (slots_.is_empty() || !slots_.front().is_whole()) return std::nullopt;
  const Slot& s = slots_.front();
  const Delivered out{s.cookie, first_msn_, s.end, s.rsvd_ulp, s.aside};
  slots_.pop();
  ++first_msn_;
  return out;
}

bool ReceiveQueue::has_partial() const {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].has_rsvd_ulp) return true;
  }
  return false;
}

std::optional<uint64_t> ReceiveQueue::take_back() {
  while (!slots_.is_empty()) {
    const Slot& s = slots_.front();
    const std::optional<uint64_t> cookie = s.has_buffer ? std::optional(s.cookie) : std::nullopt;
    fragments_.forget(first_msn_);
    slots_.pop();
    ++first_msn_;
    if (cookie) return cookie;
  }
  return std::nullopt;
}

}  // namespace ddpsock::ddp
