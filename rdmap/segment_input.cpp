// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/segment_input.h"

#include <algorithm>
#include <cassert>

namespace ddpsock::rdmap {
namespace {

// Bytes an untagged message of this kind may carry, when the format fixes them.
std::optional<uint32_t> fixed_length(Opcode op) {
  switch (op) {
    case Opcode::kReadRequest:
      return RDMAP_READ_REQUEST_SIZE;
    case Opcode::kAtomicRequest:
      return RDMAP_ATOMIC_REQUEST_SIZE;
    case Opcode::kAtomicResponse:
      return RDMAP_ATOMIC_RESPONSE_SIZE;
    default:
      return std::nullopt;
  }
}

// All segments of a message carry the same opcode and, where it counts, the same STag to
// invalidate.
bool is_same_message(const ddp::RsvdUlp& a, const ddp::RsvdUlp& b) {
  const auto op = opcode_of(a.control);
  return op == opcode_of(b.control) && (!op || !has_invalidate(*op) || a.word == b.word);
}

// Which message an untagged segment is part of, if its header may come at all.
Result<Opcode, TermCode> untagged_opcode(const ddp::UntaggedHeader& h) {
  if (h.qn >= RDMAP_QN_COUNT) return fail(TermCode::ddp(ddp::Error::kInvalidQn));
  if (!is_version_known(h.rsvd_ulp.control)) {
    return fail(TermCode::operation(RDMAP_ECODE_VERSION));
  }
  const std::optional<Opcode> op = opcode_of(h.rsvd_ulp.control);
  if (!op || is_tagged(*op)) return fail(TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE));
  if (queue_of(*op) != h.qn) return fail(TermCode::ddp(ddp::Error::kInvalidQn));
  return *op;
}

}  // namespace

SegmentInput::SegmentInput(const QpAttr& attr, StagTable& stags, CompletionQueue& recv_cq,
                           SharedReceives* shared, QpCounters& counters, SendQueue& sends,
                           InboundRequests& inbound)
    : stags_(stags),
      counters_(counters),
      sends_(sends),
      inbound_(inbound),
      stream_(attr.stream()),
      receives_(attr, stags, recv_cq, shared, counters),
      terminates_(1, attr.max_fragments, attr.order) {}

void SegmentInput::start(const Start& start) {
  rtr_ = start.rtr;
  is_rtr_awaited_ = !start.is_initiator && start.rtr != Rtr::kNone;
  ddp::ScatterList buffer;
  buffer.append(MutBytes(terminate_buffer_));
  terminates_.post(0, buffer);
}

ddp::ReceiveQueue& SegmentInput::queue(uint32_t qn) {
  if (qn == RDMAP_QN_SEND) [[likely]]
    return receives_.queue();
  switch (qn) {
    case RDMAP_QN_READ_REQUEST:
      return inbound_.queue();
    case RDMAP_QN_ATOMIC_RESPONSE:
      return sends_.outbound().atomic_responses();
    default:
      return terminates_;
  }
}

Placement SegmentInput::discard(uint32_t header, uint32_t payload) {
  open_ = OpenSegment{};
  open_->payload_length = payload;
  return {header, payload, {}, true};
}

Placement SegmentInput::discard(Bytes header, uint32_t ulpdu_length) {
  assert(!open_);
  const uint32_t size =
      std::min<uint32_t>(ulpdu_length, header.empty() ? 0 : ddp::header_size(header[0]));
  return discard(size, ulpdu_length - size);
}

Result<Placement, TermCode> SegmentInput::place(Bytes header, uint32_t ulpdu_length) {
  assert(!open_);
  last_.take(header, ulpdu_length);
  const Bytes whole = last_.bytes();
  if (whole.empty()) return fail(TermCode::ddp(ddp::Error::kLocalCatastrophic));
  const uint32_t payload = last_.payload_length();
  if (!ddp::is_tagged(whole[0])) {
    const auto view = ddp::UntaggedView::parse(whole);
    if (!view) return fail(TermCode::ddp(view.error()));
    return place_untagged(view->value(), payload);
  }
  const auto view = ddp::TaggedView::parse(whole);
  if (!view) return fail(TermCode::ddp(view.error()));
  const ddp::TaggedHeader h = view->value();
  if (!is_version_known(h.rsvd_ulp)) return fail(TermCode::operation(RDMAP_ECODE_VERSION));
  const std::optional<Opcode> op = opcode_of(h.rsvd_ulp);
  if (op == Opcode::kWrite) return place_write(h, payload);
  if (op == Opcode::kReadResponse) return place_read_response(h, payload);
  return fail(TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE));
}

Result<Placement, TermCode> SegmentInput::place_write(const ddp::TaggedHeader& h,
                                                      uint32_t payload) {
  OpenSegment s;
  s.kind = OpenSegment::Kind::kWrite;
  s.tagged = h;
  s.payload_length = payload;
  Placement out{DDP_TAGGED_HEADER_SIZE, payload, {}, false};
  // RFC 5041 section 5.2: STag and TO of a segment without payload are not looked at.
  if (payload != 0) {
    const auto where = stags_.access(h.stag, h.to, payload, kRemoteWrite, stream_);
    if (!where) return fail(TermCode::ddp(to_ddp(where.error())));
    out.spans.append(*where);
    stags_.pin(h.stag);
    s.pinned = h.stag;
  }
  open_ = s;
  return out;
}

Result<Placement, TermCode> SegmentInput::place_read_response(const ddp::TaggedHeader& h,
                                                              uint32_t payload) {
  const auto read = sends_.outbound().find(h, payload);
  if (!read) return fail(read.error());
  if (!*read) return discard(DDP_TAGGED_HEADER_SIZE, payload);

  OpenSegment s;
  s.kind = OpenSegment::Kind::kReadResponse;
  s.tagged = h;
  s.read = **read;
  s.payload_length = payload;
  Placement out{DDP_TAGGED_HEADER_SIZE, payload, {}, false};
  if (payload != 0) {
    const Result<bool, TermCode> is_duplicate = sends_.outbound().is_duplicate(s.read, h, payload);
    if (!is_duplicate) return fail(is_duplicate.error());
    // The Read has a pin on its sink since it was posted.
    const auto where =
        stags_.access_pinned(h.stag, h.to, payload, kLocalWrite | kRemoteWrite, stream_);
    if (!where) return fail(TermCode::ddp(to_ddp(where.error())));
    out.is_discarded = s.is_duplicate = *is_duplicate;
    if (!*is_duplicate) {
      out.spans.append(*where);
      stags_.pin(h.stag);
      s.pinned = h.stag;
    }
  }
  open_ = s;
  return out;
}

bool SegmentInput::is_rtr_send(Opcode op, const ddp::UntaggedHeader& h, uint32_t payload) const {
  return is_rtr_awaited_ && rtr_ == Rtr::kSend && op == Opcode::kSend &&
         h.msn == receives_.queue().first_msn() && h.mo == 0 && payload == 0 && h.is_last;
}

Result<Placement, TermCode> SegmentInput::place_untagged(const ddp::UntaggedHeader& h,
                                                         uint32_t payload) {
  const Result<Opcode, TermCode> op = untagged_opcode(h);
  if (!op) return fail(op.error());
  OpenSegment s;
  s.kind = OpenSegment::Kind::kUntagged;
  s.untagged = h;
  s.payload_length = payload;
  Placement out{DDP_UNTAGGED_HEADER_SIZE, payload, {}, false};
  if (is_rtr_send(*op, h, payload)) {
    s.kind = OpenSegment::Kind::kRtrSend;
    open_ = s;
    return out;
  }

  ddp::ReceiveQueue& to = queue(h.qn);
  to.take_in();
  const std::optional<ddp::RsvdUlp> known = to.known_rsvd_ulp(h.msn);
  if (known && !is_same_message(*known, h.rsvd_ulp)) {
    return fail(TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE));
  }
  if (const auto length = fixed_length(*op); length && uint64_t{h.mo} + payload > *length) {
    return fail(TermCode::ddp(ddp::Error::kTooLong));
  }
  // Without a receive locate() says what is wrong.
  if (h.qn == RDMAP_QN_SEND) receives_.choose(h.msn);
  const auto where =
      to.locate(h, payload, is_immediate(*op) ? ddp::Into::kAside : ddp::Into::kBuffer);
  if (!where) return fail(TermCode::ddp(where.error()));
  out.spans = where->spans;
  out.is_discarded = s.is_duplicate = where->is_duplicate;
  open_ = s;
  return out;
}

bool SegmentInput::close(bool has_failed, TerminateInfo& how) {
  assert(open_);
  const OpenSegment& s = *open_;
  if (s.pinned) stags_.unpin(*s.pinned);
  count(s);
  bool fails = false;
  switch (has_failed ? OpenSegment::Kind::kDiscarded : s.kind) {
    case OpenSegment::Kind::kUntagged: {
      ddp::ReceiveQueue& to = queue(s.untagged.qn);
      // A repeat adds nothing, but may be the one that carries the end of the message.
      to.note_placed(s.untagged, s.payload_length);
      fails = deliver(s.untagged.qn, to, how);
      break;
    }
    case OpenSegment::Kind::kRtrSend:
      receives_.queue().skip_msn();
      break;
    case OpenSegment::Kind::kWrite:
      if (!is_rtr_awaited_ || rtr_ != Rtr::kWrite || s.payload_length != 0) has_traffic_ = true;
      break;
    case OpenSegment::Kind::kReadResponse:
      has_traffic_ = true;
      sends_.outbound().note_placed(s.read, s.tagged, s.payload_length);
      break;
    case OpenSegment::Kind::kDiscarded:
      break;
  }
  is_rtr_awaited_ = false;
  open_.reset();
  return fails;
}

void SegmentInput::count(const OpenSegment& s) {
  counters_.segments_received.add(1);
  const bool is_data = s.kind == OpenSegment::Kind::kWrite ||
                       s.kind == OpenSegment::Kind::kReadResponse ||
                       (s.kind == OpenSegment::Kind::kUntagged && s.untagged.qn == RDMAP_QN_SEND);
  if (is_data && !s.is_duplicate) counters_.bytes_received.add(s.payload_length);
}

void SegmentInput::drop_open() {
  if (open_ && open_->pinned) stags_.unpin(*open_->pinned);
  open_.reset();
}

bool SegmentInput::deliver(uint32_t qn, ddp::ReceiveQueue& from, TerminateInfo& how) {
  while (const std::optional<ddp::Delivered> d = from.deliver()) {
    if (qn == RDMAP_QN_SEND) [[likely]] {
      has_traffic_ = true;
      const std::optional<TermCode> error = receives_.complete(*d);
      if (!error) continue;
      how = blame(*error);
      return true;
    }
    if (qn == RDMAP_QN_TERMINATE) {
      how = decode(*d);
      return true;
    }
    if (qn == RDMAP_QN_READ_REQUEST) {
      has_traffic_ = has_traffic_ || !is_rtr_awaited_ || !inbound_.is_read_of_nothing(*d);
      const auto taken = inbound_.take(*d, sends_.taken_in());
      if (taken) continue;
      how = blame(taken.error().code, taken.error().read_request);
      return true;
    }
    has_traffic_ = true;
    const std::optional<TermCode> error = sends_.outbound().note_atomic_response(*d);
    if (!error) continue;
    how = blame(*error);
    return true;
  }
  return false;
}

TerminateInfo SegmentInput::decode(const ddp::Delivered& d) const {
  const bool is_established = has_traffic_ || sends_.has_begun();
  const Phase phase = is_established ? Phase::kEstablished : Phase::kStartUp;
  TerminateInfo out;
  out.reason = EndReason::kTerminateReceived;
  if (const auto decoded = decode_terminate(Bytes(terminate_buffer_).first(d.length), phase)) {
    out.terminate = decoded->terminate;
    out.is_swapped = decoded->is_swapped;
  }
  return out;
}

bool SegmentInput::has_partial() {
  for (uint32_t qn = 0; qn < RDMAP_QN_COUNT; ++qn) {
    if (queue(qn).has_partial()) return true;
  }
  return false;
}

TerminateInfo SegmentInput::blame(TermCode code, Bytes read_request) const {
  return {.reason = EndReason::kTerminateSent, .terminate = last_.terminate(code, read_request)};
}

}  // namespace ddpsock::rdmap
