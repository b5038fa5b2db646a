// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/outbound_requests.h"

#include <new>

namespace ddpsock::rdmap {

OutboundRequests::OutboundRequests(const QpAttr& attr)
    : requests_(with_rtr(attr.max_ord)),
      fragments_(attr.max_fragments),
      atomic_responses_(with_rtr(attr.max_ord), attr.max_fragments, attr.order),
      atomic_buffers_(new(std::nothrow)
                          uint8_t[size_t{with_rtr(attr.max_ord)} * RDMAP_ATOMIC_RESPONSE_SIZE]),
      order_(attr.order),
      max_ord_(attr.max_ord) {}

bool OutboundRequests::has_memory(const QpAttr& attr) const {
  return requests_.has_memory_for(with_rtr(attr.max_ord)) &&
         fragments_.capacity() >= attr.max_fragments && atomic_responses_.has_memory() &&
         atomic_buffers_;
}

MutBytes OutboundRequests::atomic_buffer(uint64_t cookie) const {
  return {&atomic_buffers_[cookie * RDMAP_ATOMIC_RESPONSE_SIZE], RDMAP_ATOMIC_RESPONSE_SIZE};
}

OutboundRequests::Request& OutboundRequests::push() {
  Request& r = requests_.push();
  r = Request{};
  r.number = next_number_++;
  return r;
}

void OutboundRequests::push_read(uint64_t owner, const ReadRequest& request) {
  Request& r = push();
  r.owner = owner;
  r.read = request;
}

void OutboundRequests::push_rtr(const ReadRequest& request) {
  Request& r = push();
  r.read = request;
  r.is_rtr = true;
}

uint32_t OutboundRequests::push_atomic(uint64_t owner) {
  Request& r = push();
  r.owner = owner;
  r.is_atomic = true;
  r.request_id = static_cast<uint32_t>(owner);
  // Answers come in the order of the requests, so at most ORD of these buffers are in use, in a
  // circle.
  const uint32_t cookie = next_atomic_buffer_;
  next_atomic_buffer_ = cookie + 1 < max_ord_ ? cookie + 1 : 0;
  ddp::ScatterList buffer;
  buffer.append(atomic_buffer(cookie));
  atomic_responses_.post(cookie, buffer);
  return r.request_id;
}

// In-order LLPs: the oldest unanswered Read and no other.
Result<std::optional<uint32_t>, TermCode> OutboundRequests::find(const ddp::TaggedHeader& h,
                                                                 uint32_t payload) const {
  TermCode error = TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE);
  for (uint32_t i = 0; i < requests_.size(); ++i) {
    const Request& r = requests_[i];
    if (r.is_atomic || r.is_whole()) continue;
    const bool is_at_sink = h.stag == r.read.sink_stag && h.to >= r.read.sink_to;
    const uint64_t offset = is_at_sink ? h.to - r.read.sink_to : 0;
    if (payload == 0) {
      if (h.is_last && r.prefix == r.read.length) return i;
      error = TermCode::ddp(ddp::Error::kBaseOrBounds);
    } else if (h.stag != r.read.sink_stag) {
      error = TermCode::ddp(ddp::Error::kInvalidStag);
    } else if (!is_at_sink || offset > r.read.length || payload > r.read.length - offset ||
               (offset + payload == r.read.length) != h.is_last) {
      error = TermCode::ddp(ddp::Error::kBaseOrBounds);
    } else {
      return i;
    }
    if (order_ == ddp::LlpOrder::kInOrder) break;
  }
  // A repeat of an answer long complete cannot be told, and harms nobody when dropped.
  if (order_ == ddp::LlpOrder::kAnyOrder) return std::nullopt;
  return fail(error);
}

Result<bool, TermCode> OutboundRequests::is_duplicate(uint32_t i, const ddp::TaggedHeader& h,
                                                      uint32_t payload) const {
  const Request& r = requests_[i];
  const uint32_t offset = static_cast<uint32_t>(h.to - r.read.sink_to);
  const ddp::ByteRange range{offset, offset + payload};
  const auto novelty = fragments_.novelty(r.number, r.prefix, range);
  if (order_ == ddp::LlpOrder::kInOrder &&
      (novelty != ddp::Fragments::Novelty::kNew || (h.is_last && offset != r.prefix))) {
    return fail(TermCode::ddp(ddp::Error::kBaseOrBounds));
  }
  if (!fragments_.has_room_for(r.prefix, range)) {
    return fail(TermCode::ddp(ddp::Error::kLocalCatastrophic));
  }
  return novelty == ddp::Fragments::Novelty::kKnown;
}

void OutboundRequests::note_placed(uint32_t i, const ddp::TaggedHeader& h, uint32_t payload) {
  Request& r = requests_[i];
  if (payload != 0) {
    const uint32_t offset = static_cast<uint32_t>(h.to - r.read.sink_to);
    r.prefix = fragments_.insert(r.number, r.prefix, {offset, offset + payload});
  }
  r.has_end = r.has_end || h.is_last;
}

std::optional<TermCode> OutboundRequests::note_atomic_response(const ddp::Delivered& d) {
  const auto answer = decode_atomic_response(Bytes(atomic_buffer(d.cookie)).first(d.length));
  for (uint32_t i = 0; answer && i < requests_.size(); ++i) {
    Request& r = requests_[i];
    if (!r.is_atomic || r.has_end) continue;
    if (r.request_id != answer->request_id) break;
    r.has_end = true;
    r.original = answer->value;
    return std::nullopt;
  }
  return TermCode::operation(RDMAP_ECODE_UNSPECIFIED);
}

}  // namespace ddpsock::rdmap
