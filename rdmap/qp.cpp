// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The state of the stream, and who is asked what in it. Memory named by a segment in the LLP's
// hands is never given back before segments_sent() or on_llp_end() says so, nor a receive buffer
// while a placement into it is open.
#include "rdmap/qp.h"

#include <cassert>

namespace ddpsock::rdmap {

Qp::Qp(const QpAttr& attr, StagTable& stags, CompletionQueue& send_cq, CompletionQueue& recv_cq,
       SharedReceives* shared)
    : attr_(attr),
      counters_(attr.counters != nullptr ? *attr.counters : own_counters_),
      sends_(attr, stags, send_cq, counters_),
      inbound_(attr, stags),
      input_(attr, stags, recv_cq, shared, counters_, sends_, inbound_),
      output_(sends_, inbound_, counters_) {}

bool Qp::has_memory() const {
  return sends_.has_memory(attr_) && inbound_.has_memory(attr_) && input_.has_memory();
}

void Qp::start(const Start& start) {
  assert(state_ == QpState::kIdle && start.ird <= attr_.max_ird && start.ord <= attr_.max_ord);
  sends_.outbound().start(start.ord);
  inbound_.start(start);
  input_.start(start);
  output_.start(start);
  // From here on other threads post.
  state_ = QpState::kRts;
}

Posted Qp::post_send(std::span<const SendWr> work) {
  return sends_.post(work, state_);
}

Posted Qp::post_recv(std::span<const RecvWr> work) {
  return input_.receives().post(work, state_);
}

void Qp::take_posted() {
  sends_.take_in();
  // has_output() may have taken it in before.
  if (has_local_work()) sends_.run_local_work(output_.produced(), output_.sent());
  input_.receives().queue().take_in();
  if (state_ == QpState::kEnded || state_ == QpState::kTerminate) flush(false);
}

Result<Placement, TermCode> Qp::place(Bytes header, uint32_t ulpdu_length) {
  assert(state_ != QpState::kIdle);
  const bool has_failed = !is_open();
  if (!has_failed) output_.open();  // even a bad first FPDU opens the way for our Terminate
  Result<Placement, TermCode> where =
      has_failed ? Result<Placement, TermCode>(input_.discard(header, ulpdu_length))
                 : input_.place(header, ulpdu_length);
  if (!where) {
    info_ = input_.blame(where.error());
    enter_terminate();
  }
  return where;
}

void Qp::segment_placed() {
  const bool fails = input_.close(!is_open(), info_);
  if (sends_.take_answers()) sends_.run_local_work(output_.produced(), output_.sent());
  if (fails) enter_terminate();
  if (!is_open()) flush(false);
}

void Qp::segment_spoilt() {
  assert(input_.is_open());
  input_.drop_open();
  if (!is_open()) flush(false);
}

bool Qp::has_output() {
  // What comes late is taken in by who flushes it: take_posted().
  if (state_ == QpState::kEnded) return false;
  sends_.take_in();
  return output_.has_next();
}

bool Qp::next_segment(uint32_t mulpdu, ddp::Segment& out) {
  if (state_ == QpState::kEnded) return false;
  sends_.take_in();
  return output_.next_segment(mulpdu, out);
}

void Qp::segments_sent(uint32_t n) {
  output_.note_sent(n);
  if (!is_open()) {
    flush(false);
    return;
  }
  inbound_.retire(output_.sent());
  sends_.retire(output_.sent());
  end_if_drained();
}

void Qp::flush(bool is_forced) {
  if (input_.is_open()) {
    if (!is_forced) return;
    input_.drop_open();
  }
  inbound_.drop(output_.sent(), is_forced);
  sends_.flush(output_.sent(), is_forced);
  input_.receives().flush();
}

void Qp::enter_terminate() {
  state_ = QpState::kTerminate;
  const bool is_ours = info_.reason == EndReason::kTerminateSent && output_.may_send();
  output_.stop();
  if (is_ours) output_.send_last(info_.terminate);
  flush(false);
}

void Qp::terminate(TermCode code) {
  if (!is_open()) return;
  info_.reason = EndReason::kTerminateSent;
  info_.terminate.code = code;
  enter_terminate();
}

void Qp::close() {
  if (state_ == QpState::kRts) state_ = QpState::kClosing;
}

bool Qp::is_drained() const {
  return sends_.is_drained() && inbound_.is_empty() && output_.is_idle();
}

bool Qp::wants_close() const {
  switch (state_) {
    case QpState::kIdle:
    case QpState::kRts:
      return false;
    case QpState::kClosing:
      return is_drained();
    case QpState::kTerminate:
      return output_.is_idle();
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
  output_.stop();
  state_ = QpState::kEnded;
  flush(true);
}

void Qp::on_llp_end(LlpEnd how) {
  if (state_ == QpState::kEnded) return;
  take_posted();
  const bool is_unsendable = !output_.may_send() && !sends_.is_empty();
  const bool is_waiting = sends_.has_unanswered() || input_.has_partial() || is_unsendable;
  if (how != LlpEnd::kFinBetween || !is_open() || is_waiting) {
    end(EndReason::kLlpLost);
    return;
  }
  has_peer_closed_ = true;
  state_ = QpState::kClosing;
  input_.receives().flush();
  end_if_drained();
}

}  // namespace ddpsock::rdmap
