// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which message goes out next, and cutting it. DDP messages are not interleaved: what was submitted
// first goes first, be it a work request or the answer to a Read (RFC 5041 section 5.3); but a
// request that waits for a fence or for ORD never holds up an answer, or two ends could wait for
// each other.
#include <cassert>

#include "rdmap/qp.h"

namespace ddpsock::rdmap {
namespace {

// In messages of no octets nobody looks at the STag (RFC 5040 section 5); siw uses 1 too.
constexpr uint32_t kAnyStag = 1;

ddp::Segmenter empty_write() {
  return ddp::Segmenter(ddp::TaggedHeader{false, control_byte(Opcode::kWrite), kAnyStag, 0}, {});
}

}  // namespace

ddp::UntaggedHeader Qp::untagged_header(Opcode op, uint32_t word) {
  const uint32_t qn = queue_of(op);
  return {.is_last = false,
          .rsvd_ulp = {control_byte(op), word},
          .qn = qn,
          .msn = next_msn_[qn]++,
          .mo = 0};
}

bool Qp::can_start_entry() const {
  if (sq_next_ == sq_.size()) return false;
  const SendEntry& e = sq_[sq_next_];
  if (e.kind == WorkKind::kLocalInvalidate) return false;  // run_local_work() takes it when it can
  if (e.has_fence && !reads_.is_empty()) return false;
  return !e.awaits_response || reads_.size() < start_.ord;
}

Qp::Source Qp::choose() const {
  if (source_ != Source::kNone) return source_;
  if (is_rtr_pending_) return Source::kRtr;
  if (is_nudge_pending_) return Source::kNudge;
  const bool has_entry = can_start_entry();
  // As many answers may be in the LLP's hands as may be waiting: more and the ring would be full.
  const bool has_response =
      responses_next_ < responses_.size() && responses_next_ * 2 < responses_.capacity();
  if (has_entry && has_response) {
    const bool is_entry_first = sq_.head() + sq_next_ < responses_[responses_next_].sends_before;
    return is_entry_first ? Source::kSendQueue : Source::kResponse;
  }
  if (has_entry) return Source::kSendQueue;
  return has_response ? Source::kResponse : Source::kNone;
}

bool Qp::has_output() {
  // What comes late is taken in by who flushes it: take_posted().
  if (state_ == QpState::kEnded) return false;
  sq_.take_in();
  if (state_ == QpState::kTerminate) return is_terminate_pending_;
  return is_open() && may_send_ && choose() != Source::kNone;
}

bool Qp::next_segment(uint32_t mulpdu, ddp::Segment& out) {
  if (!has_output()) return false;
  if (state_ == QpState::kTerminate) {
    start_terminate();
  } else if (source_ == Source::kNone) {
    source_ = choose();
    switch (source_) {
      case Source::kRtr:
        start_rtr();
        break;
      case Source::kNudge:
        is_nudge_pending_ = false;
        message_ = empty_write();
        break;
      case Source::kSendQueue:
        start_entry();
        break;
      case Source::kResponse:
        start_response();
        break;
      case Source::kNone:
        return false;
    }
  }
  out = message_.next(mulpdu);
  ++produced_;
  count_sent(out);
  if (message_.is_done()) finish_message();
  return true;
}

void Qp::count_sent(const ddp::Segment& s) {
  counters_.segments_sent.add(1);
  // Requests, answers to atomics and Terminates carry what RDMAP says to itself.
  const Bytes h = s.header();
  const bool is_data =
      ddp::is_tagged(h[0]) || base::load_be32(&h[DDP_UNTAGGED_QN_OFFSET]) == RDMAP_QN_SEND;
  if (is_data) counters_.bytes_sent.add(s.payload.total());
}

void Qp::start_rtr() {
  is_rtr_pending_ = false;
  switch (start_.rtr) {
    case Rtr::kNone:
    case Rtr::kSend:
      message_ = ddp::Segmenter(untagged_header(Opcode::kSend), {});
      return;
    case Rtr::kWrite:
      message_ = empty_write();
      return;
    case Rtr::kRead: {
      const ReadRequest request{kAnyStag, 0, 0, kAnyStag, 0};
      const size_t size = *encode(MutBytes(rtr_body_), request);
      ddp::GatherList body;
      body.append(Bytes(rtr_body_).first(size));
      message_ = ddp::Segmenter(untagged_header(Opcode::kReadRequest), body);
      Outstanding& o = reads_.push();
      o = Outstanding{};
      o.read = request;
      o.number = next_read_number_++;
      o.is_rtr = true;
      return;
    }
  }
}

void Qp::start_entry() {
  has_traffic_ = true;
  SendEntry& e = sq_[sq_next_];
  e.stage = SendEntry::Stage::kStarted;
  if (e.opcode == Opcode::kWrite) {
    message_ =
        ddp::Segmenter(ddp::TaggedHeader{false, control_byte(e.opcode), e.stag, e.to}, e.payload);
    return;
  }
  if (e.awaits_response) expect_response(e);
  message_ = ddp::Segmenter(untagged_header(e.opcode, e.stag), e.payload);
}

void Qp::expect_response(SendEntry& e) {
  Outstanding& o = reads_.push();
  o = Outstanding{};
  o.entry = sq_.head() + sq_next_;
  o.number = next_read_number_++;
  if (e.kind == WorkKind::kRead) {
    o.read = e.read;
    use_body(e, static_cast<uint32_t>(*encode(MutBytes(e.body), e.read)));
    return;
  }
  o.is_atomic = true;
  o.request_id = e.atomic.request_id = static_cast<uint32_t>(o.entry);
  use_body(e, static_cast<uint32_t>(*encode(MutBytes(e.body), e.atomic)));
  // Answers come in the order of the requests, so at most ORD of these buffers are in use, in a
  // circle.
  const uint32_t cookie = next_answer_buffer_;
  next_answer_buffer_ = cookie + 1 < attr_.max_ord ? cookie + 1 : 0;
  ddp::ScatterList buffer;
  buffer.append(answer_buffer(cookie));
  queues_[RDMAP_QN_ATOMIC_RESPONSE].post(cookie, buffer);
}

void Qp::start_response() {
  Response& r = responses_[responses_next_];
  ddp::GatherList payload;
  if (r.is_atomic) {
    payload.append(Bytes(r.body));
    message_ = ddp::Segmenter(untagged_header(Opcode::kAtomicResponse), payload);
    return;
  }
  payload.append(r.source);
  message_ = ddp::Segmenter(ddp::TaggedHeader{false, control_byte(Opcode::kReadResponse),
                                              r.read.sink_stag, r.read.sink_to},
                            payload);
}

void Qp::start_terminate() {
  is_terminate_pending_ = false;
  const size_t size = *encode(MutBytes(terminate_body_), info_.terminate);
  ddp::GatherList body;
  body.append(Bytes(terminate_body_).first(size));
  message_ = ddp::Segmenter(untagged_header(Opcode::kTerminate), body);
}

void Qp::finish_message() {
  const Source done = source_;
  source_ = Source::kNone;
  if (done == Source::kSendQueue) {
    SendEntry& e = sq_[sq_next_++];
    e.stage = SendEntry::Stage::kProduced;
    e.last_segment = produced_;
    run_local_work();
  } else if (done == Source::kResponse) {
    Response& r = responses_[responses_next_++];
    r.last_segment = produced_;
    // From here on the peer may ask again: its count of what is outstanding drops when it has the
    // answer.
    if (start_.ird != 0) post_request_buffer(r.cookie);
  }
}

void Qp::run_local_work() {
  while (is_open() && source_ != Source::kSendQueue && sq_next_ < sq_.size()) {
    SendEntry& e = sq_[sq_next_];
    if (e.kind != WorkKind::kLocalInvalidate || (e.has_fence && !reads_.is_empty())) break;
    if (!stags_.invalidate(e.stag, stream())) e.status = WorkStatus::kLocalError;
    e.stage = SendEntry::Stage::kProduced;
    e.last_segment = produced_;
    ++sq_next_;
  }
  retire();
}

void Qp::segments_sent(uint32_t n) {
  assert(n <= produced_ - sent_);
  sent_ += n;
  if (!is_open()) {
    flush(false);
    return;
  }
  retire_responses();
  retire();
  end_if_drained();
}

}  // namespace ddpsock::rdmap
