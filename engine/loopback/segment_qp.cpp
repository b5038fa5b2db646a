// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/loopback/segment_qp.h"

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "mpa/fpdu.h"

namespace ddpsock::engine::loopback {
namespace {

// Ranges beyond gaps that one queue may hold: what a window of small segments can leave.
constexpr uint32_t kMaxFragments = 2048;

}  // namespace

SegmentQp::SegmentQp(SoftEngine& engine, Network& network, const QpAttr& attr, rdmap::QpAttr core)
    : engine_(engine),
      network_(network),
      attr_(attr),
      send_cq_(static_cast<SoftCq&>(*attr.send_cq)),
      recv_cq_(static_cast<SoftCq&>(*attr.recv_cq)),
      srq_(static_cast<SoftSrq*>(attr.srq)) {
  core.order = ddp::LlpOrder::kAnyOrder;
  core.max_fragments = kMaxFragments;
  core_.emplace(core, engine.stags(), send_cq_.core(), recv_cq_.core(),
                srq_ != nullptr ? &srq_->core() : nullptr);
}

SegmentQp::~SegmentQp() {
  {
    const std::lock_guard lock(engine_.mutex());
    core_.reset();
  }
  engine_.leave_pd(attr_.pd);
}

Status<StartError> SegmentQp::start(const Start& start) {
  const auto lower = network_.find(start.lower);
  if (!lower || lower->link->kind() != LinkAttr::Kind::kSegments || !start.already_read.empty()) {
    return fail(StartError::kBadLowerLayer);
  }
  const std::lock_guard lock(engine_.mutex());
  if (core_->state() != QpState::kIdle) return fail(StartError::kBadState);
  const mpa::Agreement& a = start.agreement;
  if (a.ird > attr_.max_ird || a.ord > attr_.max_ord) return fail(StartError::kDepths);
  lower_ = lower;
  mulpdu_ = start.max_ulpdu != 0 ? start.max_ulpdu : lower->link->emss();
  core_->start(
      {.is_initiator = a.is_initiator, .rtr = to_rdmap(a.rtr), .ird = a.ird, .ord = a.ord});
  return {};
}

Posted SegmentQp::send(std::span<const SendWr> work) {
  return core_->post_send(work);
}

Posted SegmentQp::recv(std::span<const RecvWr> work) {
  return core_->post_recv(work);
}

Need SegmentQp::advance(Time now, Budget budget) {
  const auto lock = engine_.lock(budget.may_wait);
  if (!lock) return {.is_busy = true, .deadline = now};
  core_->take_posted();
  if (!lower_ || core_->state() == QpState::kEnded) return {};
  receive(now);
  const bool is_blocked = core_->state() != QpState::kEnded && !transmit(now);
  finish(now);
  flush_late_posts(*core_);
  signal();
  if (core_->state() == QpState::kEnded) return {};
  return {.wants_readable = !is_fin_received_,
          .wants_writable = is_blocked,
          .deadline = std::min(linger_end_, lower_->link->next_arrival(lower_->end))};
}

void SegmentQp::receive(Time now) {
  while (!is_fin_received_ && core_->state() != QpState::kEnded) {
    const auto arrival = lower_->link->take(lower_->end, now);
    if (!arrival) {
      if (to_int(arrival.error()) != EAGAIN) end(rdmap::LlpEnd::kLost);
      return;
    }
    if (!*arrival) {
      is_fin_received_ = true;
      end(rdmap::LlpEnd::kFinBetween);
      return;
    }
    take(**arrival);
  }
}

void SegmentQp::take(const Arrival& arrival) {
  const Bytes ulpdu(arrival.ulpdu);
  const auto placement =
      core_->place(ulpdu.first(std::min<size_t>(ulpdu.size(), DDP_MAX_HEADER_SIZE)),
                   static_cast<uint32_t>(ulpdu.size()));
  if (!placement) return;
  Bytes payload = ulpdu.subspan(placement->header_length);
  if (!placement->is_discarded) {
    for (MutBytes r : placement->spans.ranges()) {
      std::copy_n(payload.begin(), r.size(), r.begin());
      payload = payload.subspan(r.size());
    }
  }
  if (!arrival.is_spoilt) {
    core_->segment_placed();
    return;
  }
  core_->segment_spoilt();
  core_->terminate(TermCode::mpa(RDMAP_ECODE_MPA_CRC));
}

// False when the link takes no more now.
bool SegmentQp::transmit(Time now) {
  while (!is_fin_sent_) {
    if (held_.empty()) {
      ddp::Segment s;
      if (!core_->next_segment(mulpdu_, s)) return true;
      held_.assign(s.header().begin(), s.header().end());
      for (Bytes r : s.payload.ranges()) held_.insert(held_.end(), r.begin(), r.end());
    }
    const auto given = lower_->link->give(lower_->end, held_, now);
    if (!given) {
      if (to_int(given.error()) == EAGAIN) return false;
      end(rdmap::LlpEnd::kLost);
      return true;
    }
    held_.clear();
    core_->segments_sent(1);
  }
  return true;
}

void SegmentQp::finish(Time now) {
  if (core_->wants_close() && !is_fin_sent_) {
    lower_->link->shut_write(lower_->end, now);
    is_fin_sent_ = true;
  }
  const bool is_waiting = is_fin_sent_ || core_->state() == QpState::kTerminate;
  if (is_waiting && linger_end_ == kNever) linger_end_ = now + attr_.linger;
  if (core_->state() != QpState::kEnded && now >= linger_end_) {
    lower_->link->drop(now);
    end(rdmap::LlpEnd::kLost);
  }
}

void SegmentQp::end(rdmap::LlpEnd how) {
  core_->on_llp_end(how);
}

void SegmentQp::signal() {
  if (send_cq_.take_event()) send_cq_.signal();
  if (&recv_cq_ != &send_cq_ && recv_cq_.take_event()) recv_cq_.signal();
  if (srq_ != nullptr && srq_->take_event()) srq_->signal();
}

void SegmentQp::drain() {
  const std::lock_guard lock(engine_.mutex());
  core_->close();
}

void SegmentQp::abort(std::optional<TermCode> why) {
  const std::lock_guard lock(engine_.mutex());
  if (why && lower_) {
    core_->terminate(*why);
  } else {
    if (lower_) lower_->link->drop(Time{});
    end(rdmap::LlpEnd::kLost);
  }
  flush_late_posts(*core_);
  signal();
}

Result<Residue, DetachError> SegmentQp::detach() {
  return fail(DetachError::kBadState);  // there is no raw form of such a link
}

QpState SegmentQp::state() const {
  return core_->state();
}

TerminateInfo SegmentQp::terminate_info() const {
  const std::lock_guard lock(engine_.mutex());
  return core_->terminate_info();
}

}  // namespace ddpsock::engine::loopback
