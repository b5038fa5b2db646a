// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completing, failing and ending. Memory named by a segment in the LLP's hands is never given back
// before segments_sent() or on_llp_end() says so, nor a receive buffer while a placement into it is
// open.
#include <algorithm>

#include "rdmap/qp.h"

namespace ddpsock::rdmap {

void Qp::complete(const SendEntry& e, WorkStatus status) {
  if (e.has_pin) stags_.unpin(e.read.sink_stag);
  if (e.is_void) {
    send_cq_.release();
    return;
  }
  counters_.sends_completed.add(1);
  if (status != WorkStatus::kOk) counters_.sends_failed.add(1);
  if (status == WorkStatus::kOk && !e.is_signalled) {
    send_cq_.release();
    return;
  }
  Completion c;
  c.id = e.id;
  c.qp = attr_.number;
  c.kind = e.kind;
  c.status = status;
  c.length = e.length;
  c.original = e.original;
  send_cq_.push(c);
}

void Qp::retire() {
  while (!sq_.is_empty()) {
    const SendEntry& e = sq_.front();
    if (e.stage != SendEntry::Stage::kProduced || e.last_segment > sent_ || e.awaits_response) {
      return;
    }
    complete(e, e.status);
    sq_.pop();
    --sq_next_;
  }
}

void Qp::retire_responses() {
  while (responses_next_ != 0 && responses_.front().last_segment <= sent_) {
    const Response& r = responses_.front();
    if (r.has_pin) stags_.unpin(r.read.source_stag);
    responses_.pop();
    --responses_next_;
  }
}

// Those nobody will cut any more, and with `is_forced` also those the LLP holds segments of.
void Qp::drop_responses(bool is_forced) {
  retire_responses();
  while (responses_.size() > (is_forced ? 0 : responses_next_)) {
    const Response& r = responses_[responses_.size() - 1];
    if (r.has_pin) stags_.unpin(r.read.source_stag);
    responses_.pop_newest();
  }
  responses_next_ = std::min(responses_next_, responses_.size());
}

// What has been cut of the message in progress is all that will be.
void Qp::abandon_message() {
  if (source_ == Source::kSendQueue) {
    SendEntry& e = sq_[sq_next_++];
    e.stage = SendEntry::Stage::kProduced;
    e.last_segment = produced_;
    e.status = WorkStatus::kFlushed;
  } else if (source_ == Source::kResponse) {
    responses_[responses_next_++].last_segment = produced_;
  }
  source_ = Source::kNone;
}

void Qp::flush_sends(bool is_forced) {
  sq_.take_in();
  while (!sq_.is_empty()) {
    const SendEntry& e = sq_.front();
    const bool is_produced = e.stage == SendEntry::Stage::kProduced;
    const bool is_held = is_produced && e.last_segment > sent_;
    if (is_held && !is_forced) return;
    const bool is_done = is_produced && !is_held && !e.awaits_response;
    complete(e, is_done ? e.status : WorkStatus::kFlushed);
    sq_.pop();
    if (sq_next_ != 0) --sq_next_;
  }
}

Completion Qp::receive_completion(uint64_t id) const {
  Completion c;
  c.id = id;
  c.qp = attr_.number;
  c.kind = WorkKind::kReceive;
  c.is_shared = shared_ != nullptr;
  return c;
}

void Qp::complete_receive(const Completion& c) {
  counters_.receives_completed.add(1);
  if (c.status != WorkStatus::kOk) counters_.receives_failed.add(1);
  recv_cq_.push(c);
}

void Qp::flush_receives() {
  queues_[RDMAP_QN_SEND].take_in();
  while (const std::optional<uint64_t> id = queues_[RDMAP_QN_SEND].take_back()) {
    Completion c = receive_completion(*id);
    c.status = WorkStatus::kFlushed;
    complete_receive(c);
  }
}

void Qp::flush(bool is_forced) {
  if (open_) {
    if (!is_forced) return;
    if (open_->pinned) stags_.unpin(*open_->pinned);
    open_.reset();
  }
  drop_responses(is_forced);
  flush_sends(is_forced);
  flush_receives();
}

void Qp::enter_terminate(const Terminate& t, EndReason reason) {
  if (!is_open()) return;
  state_ = QpState::kTerminate;
  info_.reason = reason;
  info_.terminate = t;
  is_terminate_pending_ = reason == EndReason::kTerminateSent && may_send_;
  abandon_message();
  flush(false);
}

std::unexpected<TermCode> Qp::fail_segment(TermCode code, Bytes read_request) {
  Terminate t;
  t.code = code;
  // RFC 5040 figure 10: local catastrophic errors carry no headers.
  const bool has_headers = code.etype != RDMAP_ETYPE_LOCAL_CATASTROPHIC;
  if (has_headers && last_header_length_ != 0) {
    t.segment_length = static_cast<uint16_t>(last_ulpdu_length_);
    t.ddp_header = last_header_;
    t.ddp_header_length = static_cast<uint8_t>(last_header_length_);
    if (read_request.size() == t.read_request.size()) {
      std::copy(read_request.begin(), read_request.end(), t.read_request.begin());
      t.has_read_request = true;
    }
  }
  enter_terminate(t, EndReason::kTerminateSent);
  return fail(code);
}

void Qp::terminate(TermCode code) {
  Terminate t;
  t.code = code;
  enter_terminate(t, EndReason::kTerminateSent);
}

void Qp::close() {
  if (state_ == QpState::kRts) state_ = QpState::kClosing;
}

bool Qp::is_drained() const {
  return sq_.is_idle() && responses_.is_empty() && reads_.is_empty() && source_ == Source::kNone &&
         !is_rtr_pending_ && !is_nudge_pending_ && produced_ == sent_;
}

bool Qp::wants_close() const {
  switch (state_) {
    case QpState::kIdle:
    case QpState::kRts:
      return false;
    case QpState::kClosing:
      return is_drained();
    case QpState::kTerminate:
      return !is_terminate_pending_ && produced_ == sent_;
    case QpState::kEnded:
      break;
  }
  return true;
}

void Qp::end_if_drained() {
  if (state_ == QpState::kClosing && has_peer_closed_ && is_drained()) end(EndReason::kOrderly);
}

void Qp::end(EndReason reason) {
  if (info_.reason == EndReason::kNone) info_.reason = reason;
  if (is_open()) abandon_message();
  state_ = QpState::kEnded;
  is_terminate_pending_ = false;
  flush(true);
}

void Qp::on_llp_end(LlpEnd how) {
  if (state_ == QpState::kEnded) return;
  take_posted();
  const bool is_waiting = !reads_.is_empty() || has_partial_receive() || has_unanswerable_work() ||
                          has_unsendable_work();
  if (how != LlpEnd::kFinBetween || !is_open() || is_waiting) {
    end(EndReason::kLlpLost);
    return;
  }
  has_peer_closed_ = true;
  state_ = QpState::kClosing;
  flush_receives();
  end_if_drained();
}

bool Qp::has_partial_receive() const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const ddp::ReceiveQueue& q) { return q.has_partial(); });
}

bool Qp::has_unanswerable_work() const {
  for (uint32_t i = 0; i < sq_.size(); ++i) {
    if (sq_[i].awaits_response) return true;
  }
  return false;
}

}  // namespace ddpsock::rdmap
