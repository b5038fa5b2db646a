// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// From a ULPDU's header to the memory its payload belongs in; and what is noted once it is there.
#include <algorithm>
#include <cassert>

#include "rdmap/qp.h"

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

}  // namespace

void Qp::take_last_header(Bytes header, uint32_t ulpdu_length) {
  last_ulpdu_length_ = ulpdu_length;
  last_header_length_ = 0;
  if (header.empty() || ulpdu_length == 0) return;
  const uint32_t size = ddp::header_size(header[0]);
  if (header.size() < size || ulpdu_length < size) return;
  std::copy_n(header.begin(), size, last_header_.begin());
  last_header_length_ = size;
}

Placement Qp::discard(uint32_t header, uint32_t payload) {
  open_ = OpenSegment{};
  open_->payload_length = payload;
  return {header, payload, {}, true};
}

Result<Placement, TermCode> Qp::place(Bytes header, uint32_t ulpdu_length) {
  assert(!open_ && state_ != QpState::kIdle);
  take_last_header(header, ulpdu_length);
  if (!is_open()) {
    const uint32_t size =
        std::min<uint32_t>(ulpdu_length, header.empty() ? 0 : ddp::header_size(header[0]));
    return discard(size, ulpdu_length - size);
  }
  may_send_ = true;  // even a bad first FPDU opens the way for our Terminate
  if (last_header_length_ == 0) {
    return fail_segment(TermCode::ddp(ddp::Error::kLocalCatastrophic));
  }
  const Bytes h = Bytes(last_header_).first(last_header_length_);
  const uint32_t payload = ulpdu_length - last_header_length_;
  if (ddp::is_tagged(h[0])) {
    const auto view = ddp::TaggedView::parse(h);
    return view ? place_tagged(*view, payload) : fail_segment(TermCode::ddp(view.error()));
  }
  const auto view = ddp::UntaggedView::parse(h);
  return view ? place_untagged(*view, payload) : fail_segment(TermCode::ddp(view.error()));
}

Result<Placement, TermCode> Qp::place_tagged(const ddp::TaggedView& view, uint32_t payload) {
  const ddp::TaggedHeader h = view.value();
  if (!is_version_known(h.rsvd_ulp)) return fail_segment(TermCode::operation(RDMAP_ECODE_VERSION));
  const std::optional<Opcode> op = opcode_of(h.rsvd_ulp);
  if (op == Opcode::kWrite) return place_write(h, payload);
  if (op == Opcode::kReadResponse) return place_read_response(h, payload);
  return fail_segment(TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE));
}

Result<Placement, TermCode> Qp::place_write(const ddp::TaggedHeader& h, uint32_t payload) {
  OpenSegment s;
  s.kind = OpenSegment::Kind::kWrite;
  s.tagged = h;
  s.payload_length = payload;
  Placement out{DDP_TAGGED_HEADER_SIZE, payload, {}, false};
  // RFC 5041 section 5.2: STag and TO of a segment without payload are not looked at.
  if (payload != 0) {
    const auto where = stags_.access(h.stag, h.to, payload, kRemoteWrite, stream());
    if (!where) return fail_segment(TermCode::ddp(to_ddp(where.error())));
    out.spans.append(*where);
    stags_.pin(h.stag);
    s.pinned = h.stag;
  }
  open_ = s;
  return out;
}

// Which of our Reads the segment answers. In-order LLPs: the oldest unanswered one and no other.
Result<uint32_t, TermCode> Qp::read_for(const ddp::TaggedHeader& h, uint32_t payload) const {
  TermCode first_error = TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE);
  bool is_first = true;
  for (uint32_t i = 0; i < reads_.size(); ++i) {
    const Outstanding& o = reads_[i];
    if (o.is_atomic || o.is_whole()) continue;
    const bool is_at_sink = h.stag == o.read.sink_stag && h.to >= o.read.sink_to;
    const uint64_t offset = is_at_sink ? h.to - o.read.sink_to : 0;
    TermCode error;
    if (payload == 0) {
      if (h.is_last && o.prefix == o.read.length) return i;
      error = TermCode::ddp(ddp::Error::kBaseOrBounds);
    } else if (h.stag != o.read.sink_stag) {
      error = TermCode::ddp(ddp::Error::kInvalidStag);
    } else if (!is_at_sink || offset > o.read.length || payload > o.read.length - offset ||
               (offset + payload == o.read.length) != h.is_last) {
      error = TermCode::ddp(ddp::Error::kBaseOrBounds);
    } else {
      return i;
    }
    if (is_first) first_error = error;
    is_first = false;
    if (attr_.order == ddp::LlpOrder::kInOrder) break;
  }
  return fail(first_error);
}

Result<Placement, TermCode> Qp::place_read_response(const ddp::TaggedHeader& h, uint32_t payload) {
  const Result<uint32_t, TermCode> at = read_for(h, payload);
  if (!at) {
    // Perhaps a repeat of an answer long complete; it cannot be told, and harms nobody when
    // dropped.
    if (attr_.order == ddp::LlpOrder::kAnyOrder) return discard(DDP_TAGGED_HEADER_SIZE, payload);
    return fail_segment(at.error());
  }
  const Outstanding& o = reads_[*at];

  OpenSegment s;
  s.kind = OpenSegment::Kind::kReadResponse;
  s.tagged = h;
  s.read = *at;
  s.payload_length = payload;
  Placement out{DDP_TAGGED_HEADER_SIZE, payload, {}, false};
  if (payload != 0) {
    const uint32_t offset = static_cast<uint32_t>(h.to - o.read.sink_to);
    const ddp::ByteRange range{offset, offset + payload};
    const auto novelty = read_fragments_.novelty(o.number, o.prefix, range);
    if (attr_.order == ddp::LlpOrder::kInOrder &&
        (novelty != ddp::Fragments::Novelty::kNew || (h.is_last && offset != o.prefix))) {
      return fail_segment(TermCode::ddp(ddp::Error::kBaseOrBounds));
    }
    if (!read_fragments_.has_room_for(o.prefix, range)) {
      return fail_segment(TermCode::ddp(ddp::Error::kLocalCatastrophic));
    }
    // The Read has a pin on its sink since it was posted.
    const auto where =
        stags_.access_pinned(h.stag, h.to, payload, kLocalWrite | kRemoteWrite, stream());
    if (!where) return fail_segment(TermCode::ddp(to_ddp(where.error())));
    if (novelty == ddp::Fragments::Novelty::kKnown) {
      s.is_duplicate = true;
      out.is_discarded = true;
    } else {
      out.spans.append(*where);
      stags_.pin(h.stag);
      s.pinned = h.stag;
    }
  }
  open_ = s;
  return out;
}

// The first segment of a message chooses its receive. Without one locate() says what is wrong.
void Qp::take_shared(const ddp::UntaggedHeader& h) {
  ddp::ReceiveQueue& queue = queues_[RDMAP_QN_SEND];
  if (!queue.wants_buffer(h.msn)) return;
  const auto taken = shared_->take();
  if (!taken) return;
  counters_.receives_posted.add_shared(1);
  queue.assign(h.msn, taken->id, taken->buffer);
}

bool Qp::is_rtr_send(Opcode op, const ddp::UntaggedHeader& h, uint32_t payload) const {
  return is_rtr_awaited_ && start_.rtr == Rtr::kSend && op == Opcode::kSend &&
         h.msn == queues_[RDMAP_QN_SEND].first_msn() && h.mo == 0 && payload == 0 && h.is_last;
}

Result<Placement, TermCode> Qp::place_untagged(const ddp::UntaggedView& view, uint32_t payload) {
  const ddp::UntaggedHeader h = view.value();
  if (h.qn >= RDMAP_QN_COUNT) return fail_segment(TermCode::ddp(ddp::Error::kInvalidQn));
  if (!is_version_known(h.rsvd_ulp.control)) {
    return fail_segment(TermCode::operation(RDMAP_ECODE_VERSION));
  }
  const std::optional<Opcode> op = opcode_of(h.rsvd_ulp.control);
  if (!op || is_tagged(*op)) {
    return fail_segment(TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE));
  }
  if (queue_of(*op) != h.qn) return fail_segment(TermCode::ddp(ddp::Error::kInvalidQn));

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

  ddp::ReceiveQueue& queue = queues_[h.qn];
  queue.take_in();
  const std::optional<ddp::RsvdUlp> known = queue.known_rsvd_ulp(h.msn);
  if (known && !is_same_message(*known, h.rsvd_ulp)) {
    return fail_segment(TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE));
  }
  if (const auto length = fixed_length(*op); length && uint64_t{h.mo} + payload > *length) {
    return fail_segment(TermCode::ddp(ddp::Error::kTooLong));
  }
  if (shared_ != nullptr && h.qn == RDMAP_QN_SEND) take_shared(h);
  const auto where =
      queue.locate(h, payload, is_immediate(*op) ? ddp::Into::kAside : ddp::Into::kBuffer);
  if (!where) return fail_segment(TermCode::ddp(where.error()));
  out.spans = where->spans;
  out.is_discarded = s.is_duplicate = where->is_duplicate;
  open_ = s;
  return out;
}

void Qp::segment_placed() {
  assert(open_);
  const OpenSegment s = *open_;
  open_.reset();
  if (s.pinned) stags_.unpin(*s.pinned);
  count_received(s);
  if (!is_open()) {
    flush(false);
    return;
  }
  const bool is_rtr_write = s.kind == OpenSegment::Kind::kWrite && is_rtr_awaited_ &&
                            start_.rtr == Rtr::kWrite && s.payload_length == 0;
  switch (s.kind) {
    case OpenSegment::Kind::kUntagged:
      // A repeat adds nothing, but may be the one that carries the end of the message.
      queues_[s.untagged.qn].note_placed(s.untagged, s.payload_length);
      deliver_untagged(s.untagged.qn);
      break;
    case OpenSegment::Kind::kRtrSend:
      queues_[RDMAP_QN_SEND].skip_msn();
      break;
    case OpenSegment::Kind::kWrite:
      has_traffic_ = has_traffic_ || !is_rtr_write;
      break;
    case OpenSegment::Kind::kReadResponse:
      has_traffic_ = true;
      note_read_response(s);
      break;
    case OpenSegment::Kind::kDiscarded:
      break;
  }
  is_rtr_awaited_ = false;
  if (!is_open()) flush(false);
}

void Qp::count_received(const OpenSegment& s) {
  counters_.segments_received.add(1);
  const bool is_data = s.kind == OpenSegment::Kind::kWrite ||
                       s.kind == OpenSegment::Kind::kReadResponse ||
                       (s.kind == OpenSegment::Kind::kUntagged && s.untagged.qn == RDMAP_QN_SEND);
  if (is_data && !s.is_duplicate) counters_.bytes_received.add(s.payload_length);
}

void Qp::segment_spoilt() {
  assert(open_);
  if (open_->pinned) stags_.unpin(*open_->pinned);
  open_.reset();
  if (!is_open()) flush(false);
}

void Qp::note_read_response(const OpenSegment& s) {
  Outstanding& o = reads_[s.read];
  if (s.payload_length != 0) {
    const uint32_t offset = static_cast<uint32_t>(s.tagged.to - o.read.sink_to);
    o.prefix = read_fragments_.insert(o.number, o.prefix, {offset, offset + s.payload_length});
  }
  o.has_end = o.has_end || s.tagged.is_last;
  deliver_reads();
}

}  // namespace ddpsock::rdmap
