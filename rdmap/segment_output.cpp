// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/segment_output.h"

#include <cassert>

namespace ddpsock::rdmap {
namespace {

// In messages of no octets nobody looks at the STag (RFC 5040 section 5); siw uses 1 too.
constexpr uint32_t kAnyStag = 1;

ddp::Segmenter empty_write() {
  return ddp::Segmenter(ddp::TaggedHeader{false, control_byte(Opcode::kWrite), kAnyStag, 0}, {});
}

}  // namespace

SegmentOutput::SegmentOutput(SendQueue& sends, InboundRequests& inbound, QpCounters& counters)
    : sends_(sends), inbound_(inbound), counters_(counters) {
  next_msn_.fill(DDP_FIRST_MSN);
}

void SegmentOutput::start(const Start& start) {
  rtr_ = start.rtr;
  may_send_ = start.is_initiator;
  is_rtr_pending_ = start.is_initiator && start.rtr != Rtr::kNone;
}

// Whose segments say themselves which is the last.
ddp::UntaggedHeader SegmentOutput::untagged_header(Opcode op, uint32_t word) {
  const ddp::UntaggedHeader header = next_header(op, word);
  ++next_msn_[header.qn];
  return header;
}

SegmentOutput::Source SegmentOutput::choose() const {
  if (source_ != Source::kNone) return source_;
  if (terminate_size_ != 0) return Source::kTerminate;
  if (!may_send_) return Source::kNone;
  if (is_rtr_pending_) return Source::kRtr;
  if (is_nudge_pending_) return Source::kNudge;
  const bool has_entry = sends_.can_start();
  const bool has_response = inbound_.has_next();
  if (has_entry && has_response) {
    return sends_.next_ordinal() < inbound_.next().sends_before ? Source::kSendQueue
                                                                : Source::kResponse;
  }
  if (has_entry) return Source::kSendQueue;
  return has_response ? Source::kResponse : Source::kNone;
}

bool SegmentOutput::next_segment(uint32_t mulpdu, ddp::Segment& out) {
  if (source_ == Source::kNone) {
    source_ = choose();
    if (source_ == Source::kNone) return false;
    start_message();
  }
  out = message_.next(mulpdu);
  ++produced_;
  count(out);
  if (message_.is_done()) finish_message();
  return true;
}

void SegmentOutput::count(const ddp::Segment& s) {
  counters_.segments_sent.add(1);
  // Requests, answers to atomics and Terminates carry what RDMAP says to itself.
  const Bytes h = s.header();
  const bool is_data =
      ddp::is_tagged(h[0]) || base::load_be32(&h[DDP_UNTAGGED_QN_OFFSET]) == RDMAP_QN_SEND;
  if (is_data) counters_.bytes_sent.add(s.payload.total());
}

void SegmentOutput::start_message() {
  switch (source_) {
    case Source::kRtr:
      start_rtr();
      break;
    case Source::kNudge:
      is_nudge_pending_ = false;
      message_ = empty_write();
      break;
    case Source::kSendQueue:
      start_entry(sends_.start());
      break;
    case Source::kResponse:
      start_response(inbound_.next());
      break;
    case Source::kTerminate:
      start_terminate();
      break;
    case Source::kNone:
      break;
  }
}

void SegmentOutput::start_rtr() {
  is_rtr_pending_ = false;
  switch (rtr_) {
    case Rtr::kNone:
    case Rtr::kSend:
      message_ = ddp::Segmenter(untagged_header(Opcode::kSend), {});
      return;
    case Rtr::kWrite:
      message_ = empty_write();
      return;
    case Rtr::kRead: {
      const ReadRequest request{kAnyStag, 0, 0, kAnyStag, 0};
      ddp::GatherList body;
      body.append(Bytes(rtr_body_).first(*encode(MutBytes(rtr_body_), request)));
      message_ = ddp::Segmenter(untagged_header(Opcode::kReadRequest), body);
      sends_.outbound().push_rtr(request);
      return;
    }
  }
}

void SegmentOutput::start_entry(const SendEntry& e) {
  if (e.opcode == Opcode::kWrite) {
    message_ =
        ddp::Segmenter(ddp::TaggedHeader{false, control_byte(e.opcode), e.stag, e.to}, e.payload);
    return;
  }
  message_ = ddp::Segmenter(untagged_header(e.opcode, e.stag), e.payload);
}

void SegmentOutput::start_response(const Response& r) {
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

void SegmentOutput::start_terminate() {
  ddp::GatherList body;
  body.append(Bytes(terminate_body_).first(terminate_size_));
  message_ = ddp::Segmenter(untagged_header(Opcode::kTerminate), body);
  terminate_size_ = 0;
}

void SegmentOutput::finish_message() {
  const Source done = source_;
  source_ = Source::kNone;
  if (done == Source::kSendQueue) {
    sends_.finish(produced_);
    sends_.run_local_work(produced_, sent_);
  } else if (done == Source::kResponse) {
    inbound_.finish(produced_);
  }
}

void SegmentOutput::stop() {
  if (source_ == Source::kSendQueue) sends_.finish(produced_, WorkStatus::kFlushed);
  if (source_ == Source::kResponse) inbound_.abandon(produced_);
  source_ = Source::kNone;
  may_send_ = is_rtr_pending_ = is_nudge_pending_ = false;
  terminate_size_ = 0;
}

void SegmentOutput::send_last(const Terminate& t) {
  terminate_size_ = static_cast<uint32_t>(*encode(MutBytes(terminate_body_), t));
}

void SegmentOutput::note_sent(uint32_t n) {
  assert(n <= produced_ - sent_);
  sent_ += n;
}

}  // namespace ddpsock::rdmap
