// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/soft/soft_qp.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "mpa/fpdu.h"

namespace ddpsock::engine {
namespace {

// On the stack of advance(): one read of small and medium FPDUs.
constexpr size_t kSpillSize = 32 * 1024;

size_t total(std::span<const MutBytes> ranges) {
  size_t n = 0;
  for (MutBytes r : ranges) n += r.size();
  return n;
}

// What the core is to keep of an agreed IRD or ORD. It has room of its own for a Read RTR.
uint32_t depth(const mpa::Agreement& agreed, uint16_t value, uint32_t most) {
  if (value == mpa::kNotNegotiated) return most;
  const bool is_for_rtr = agreed.rtr == mpa::Rtr::kRead && value == 1 && most == 0;
  return is_for_rtr ? 0 : value;
}

// What the tap sees: the first `octets` of `ranges`.
template <typename Range, typename Tell>
void tell(std::span<const Range> ranges, size_t octets, const Tell& to_tap) {
  std::array<Bytes, Transmitter::kMaxPieces> seen;
  size_t count = 0;
  for (const Range& r : ranges) {
    if (octets == 0) break;
    const size_t n = std::min(octets, r.size());
    seen[count++] = Bytes(r).first(n);
    octets -= n;
  }
  to_tap(std::span<const Bytes>(seen).first(count));
}

}  // namespace

SoftQp::SoftQp(SoftEngine& engine, const QpAttr& attr, const rdmap::QpAttr& core)
    : engine_(engine),
      pd_(attr.pd),
      linger_(attr.linger),
      nudge_after_(attr.nudge),
      max_ird_(attr.max_ird),
      max_ord_(attr.max_ord),
      send_cq_(static_cast<SoftCq&>(*attr.send_cq)),
      recv_cq_(static_cast<SoftCq&>(*attr.recv_cq)) {
  core_.emplace(core, engine.stags(), send_cq_.core(), recv_cq_.core());
}

SoftQp::~SoftQp() {
  {
    const std::lock_guard lock(engine_.mutex());
    core_.reset();
  }
  engine_.leave_pd(pd_);
}

Status<StartError> SoftQp::start(const Start& start) {
  auto channel = engine_.open_channel(start.lower);
  if (!channel) return fail(channel.error());
  const mpa::Agreement& agreed = start.agreement;

  const std::lock_guard lock(engine_.mutex());
  if (core_->state() != QpState::kIdle) return fail(StartError::kBadState);
  const uint32_t ird = depth(agreed, agreed.ird, max_ird_);
  const uint32_t ord = depth(agreed, agreed.ord, max_ord_);
  if (ird > max_ird_ || ord > max_ord_) return fail(StartError::kDepths);
  lower_ = start.lower;
  channel_ = std::move(*channel);
  tap_ = start.tap;
  max_ulpdu_ = start.max_ulpdu;
  send_markers_ = agreed.send_markers;
  tx_.configure(agreed.has_crc, agreed.send_markers);
  rx_.configure(agreed.has_crc, agreed.receive_markers);
  if (agreed.is_initiator) nudge_.configure(nudge_after_);
  core_->start(
      {.is_initiator = agreed.is_initiator, .rtr = to_rdmap(agreed.rtr), .ird = ird, .ord = ord});
  rx_.consume(*core_, start.already_read);
  signal();
  return {};
}

Posted SoftQp::send(std::span<const SendWr> work) {
  const std::lock_guard lock(engine_.mutex());
  const Posted posted = core_->post_send(work);
  signal();
  return posted;
}

Posted SoftQp::recv(std::span<const RecvWr> work) {
  const std::lock_guard lock(engine_.mutex());
  return core_->post_recv(work);
}

Need SoftQp::advance(Time now, Budget budget) {
  {
    const std::lock_guard lock(engine_.mutex());
    if (is_advancing_) return {.is_busy = true};
    if (!channel_ || core_->state() == QpState::kEnded) return {};
    is_advancing_ = true;
    if (nudge_.take(now)) core_->nudge();
  }
  const Turn received = budget.may_be_readable ? receive(now, budget.bytes) : Turn::kIdle;
  // Once ended, memory in gathered segments is its owner's again; and there are no others then.
  const bool may_send = received != Turn::kLost && (tx_.is_empty() || state() != QpState::kEnded);
  const Turn sent = may_send ? transmit(now, budget.bytes) : Turn::kIdle;
  const std::lock_guard lock(engine_.mutex());
  finish(now, received == Turn::kLost || sent == Turn::kLost);
  return need(now, received, sent);
}

SoftQp::Turn SoftQp::receive(Time now, uint32_t budget) {
  std::array<uint8_t, kSpillSize> spill;  // NOLINT: deliberately not cleared
  uint32_t octets = 0;
  while (!is_fin_received_ && octets < budget) {
    const std::span<const MutBytes> targets = rx_.targets(spill);
    const size_t wanted = total(targets);
    const Result<size_t> n = channel_->receive(targets, now);
    if (!n) return to_int(n.error()) == EAGAIN ? Turn::kIdle : Turn::kLost;
    if (*n == 0) {
      is_fin_received_ = true;
      if (tap_ != nullptr) tap_->received_fin(now);
      const std::lock_guard lock(engine_.mutex());
      end(rx_.end(*core_));
      return Turn::kIdle;
    }
    if (tap_ != nullptr) tell(targets, *n, [&](auto seen) { tap_->received(seen, now); });
    nudge_.heard();
    rx_.took(*n, spill);
    {
      const std::lock_guard lock(engine_.mutex());
      rx_.consume(*core_);
      signal();
    }
    octets += static_cast<uint32_t>(*n);
    if (*n < wanted && channel_->is_emptied_by_short_read()) return Turn::kIdle;
  }
  return is_fin_received_ ? Turn::kIdle : Turn::kMore;
}

SoftQp::Turn SoftQp::transmit(Time now, uint32_t budget) {
  uint32_t octets = 0;
  uint32_t fpdus = 0;  // whole ones that the core has not been told of
  while (!is_fin_sent_) {
    if (tx_.is_empty()) {
      const uint32_t limit = mulpdu(now);
      {
        const std::lock_guard lock(engine_.mutex());
        tell_sent(fpdus);
        if (octets >= budget) return Turn::kMore;
        if (!tx_.gather(*core_, limit, budget - octets)) return Turn::kIdle;
      }
      fpdus = 0;
      tx_.frame();
    }
    const Result<size_t> n = channel_->send(tx_.pieces(), now);
    if (n) {
      if (tap_ != nullptr) tell(tx_.pieces(), *n, [&](auto seen) { tap_->sent(seen, now); });
      nudge_.sent(now);
      octets += static_cast<uint32_t>(*n);
      fpdus += tx_.taken(*n);
      continue;
    }
    const std::lock_guard lock(engine_.mutex());
    tell_sent(fpdus);
    return to_int(n.error()) == EAGAIN ? Turn::kBlocked : Turn::kLost;
  }
  return Turn::kIdle;
}

void SoftQp::tell_sent(uint32_t fpdus) {
  if (fpdus == 0) return;
  core_->segments_sent(fpdus);
  signal();
}

uint32_t SoftQp::mulpdu(Time now) {
  const uint32_t most = send_markers_ ? MPA_MAX_ULPDU_WITH_MARKERS : MPA_MAX_ULPDU;
  if (max_ulpdu_ == 0) return mpa::mulpdu(channel_->emss(now), send_markers_);
  return std::clamp<uint32_t>(max_ulpdu_, MPA_MIN_MULPDU, most);
}

void SoftQp::finish(Time now, bool is_lost) {
  if (is_drop_wanted_ || is_lost) {
    channel_->drop(now);
    end(rdmap::LlpEnd::kLost);
    return;
  }
  const bool is_ending = core_->wants_close() && !is_detaching_;
  if (is_ending && !is_fin_sent_) {
    channel_->shut_write(now);
    is_fin_sent_ = true;
    if (tap_ != nullptr) tap_->sent_fin(now);
  }
  // The wait for the peer begins with our FIN, or with a Terminate that it does not read.
  const bool is_waiting = is_fin_sent_ || core_->state() == QpState::kTerminate;
  if (is_waiting && linger_end_ == kNever) linger_end_ = now + linger_;
  if (core_->state() != QpState::kEnded && now >= linger_end_) {
    channel_->drop(now);
    end(rdmap::LlpEnd::kLost);
  }
}

Need SoftQp::need(Time now, Turn received, Turn sent) {
  is_advancing_ = false;
  if (core_->state() == QpState::kEnded) return {};
  Need n;
  n.wants_readable = !is_fin_received_;
  n.wants_writable = sent == Turn::kBlocked;
  n.deadline = std::min({linger_end_, nudge_.due(), channel_->next_event(now)});
  // A post or an abort may have come while bytes moved without the lock.
  const bool has_new_work = sent == Turn::kIdle && !is_fin_sent_ && core_->has_output();
  if (received == Turn::kMore || sent == Turn::kMore || has_new_work || is_drop_wanted_) {
    n.deadline = now;
  }
  return n;
}

void SoftQp::end(rdmap::LlpEnd how) {
  core_->on_llp_end(how);
  signal();
}

void SoftQp::signal() {
  send_cq_.signal();
  if (&recv_cq_ != &send_cq_) recv_cq_.signal();
}

void SoftQp::drain() {
  const std::lock_guard lock(engine_.mutex());
  core_->close();
}

void SoftQp::abort(std::optional<TermCode> why) {
  const std::lock_guard lock(engine_.mutex());
  if (why && channel_) {
    core_->terminate(*why);
    signal();
    return;
  }
  is_drop_wanted_ = true;
  if (is_advancing_) return;
  // Never started: nothing but posted receives to give back.
  if (channel_ && core_->state() != QpState::kEnded) channel_->drop(Time{});
  end(rdmap::LlpEnd::kLost);
}

Result<Residue, DetachError> SoftQp::detach() {
  const std::lock_guard lock(engine_.mutex());
  const QpState state = core_->state();
  if (state != QpState::kRts && state != QpState::kClosing) return fail(DetachError::kBadState);
  if (is_fin_sent_ || is_fin_received_) return fail(DetachError::kBadState);
  is_detaching_ = true;
  core_->close();
  if (is_advancing_ || !core_->wants_close() || !tx_.is_empty() || !rx_.is_between_fpdus()) {
    return fail(DetachError::kBusy);
  }
  end(rdmap::LlpEnd::kFinBetween);
  return Residue{.lower = lower_, .state = {}};
}

QpState SoftQp::state() const {
  const std::lock_guard lock(engine_.mutex());
  return core_->state();
}

TerminateInfo SoftQp::terminate_info() const {
  const std::lock_guard lock(engine_.mutex());
  return core_->terminate_info();
}

}  // namespace ddpsock::engine
