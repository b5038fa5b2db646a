// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/soft/soft_qp.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/cancellation.h"
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
      recv_cq_(static_cast<SoftCq&>(*attr.recv_cq)),
      srq_(static_cast<SoftSrq*>(attr.srq)) {
  core_.emplace(core, engine.stags(), send_cq_.core(), recv_cq_.core(),
                srq_ != nullptr ? &srq_->core() : nullptr);
}

SoftQp::~SoftQp() {
  {
    const std::lock_guard lock(engine_.mutex());
    if (link_) link_->revoke();
    core_.reset();
  }
  engine_.leave_pd(pd_);
}

Status<StartError> SoftQp::start(const Start& start) {
  auto channel = engine_.open_channel(start);
  if (!channel) return fail(channel.error());
  const mpa::Agreement& agreed = start.agreement;

  Lock lock(engine_.mutex());
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
  if (start.memory != nullptr) link_.emplace(*start.memory);
  note_mulpdu(link_ ? link_->mulpdu(max_ulpdu_) : mulpdu(Time{}));
  if (agreed.is_initiator && !link_) nudge_.configure(nudge_after_);
  core_->start(
      {.is_initiator = agreed.is_initiator, .rtr = to_rdmap(agreed.rtr), .ird = ird, .ord = ord});
  rx_.consume(*core_, start.already_read);
  signal(lock);
  is_in_memory_.store(link_.has_value(), std::memory_order_release);
  return {};
}

Posted SoftQp::send(std::span<const SendWr> work) {
  return core_->post_send(work);
}

Posted SoftQp::recv(std::span<const RecvWr> work) {
  return core_->post_recv(work);
}

Need SoftQp::advance(Time now, Budget budget) {
  if (is_in_memory_.load(std::memory_order_acquire)) return advance_in_memory(now, budget);
  Lock lock = engine_.lock(budget.may_wait);
  if (!lock) return {.is_busy = true, .deadline = now};
  if (is_advancing_) return {.is_busy = true};
  if (!channel_ || core_->state() == QpState::kEnded) return {};
  core_->take_posted();
  is_advancing_ = true;
  if (!budget.may_be_readable) nudge_.put_off(now);
  const Turn received = budget.may_be_readable ? receive(lock, now, budget.bytes) : Turn::kIdle;
  // A peer whose words lay unread needs none.
  if (nudge_.take(now)) core_->nudge();
  // Once ended, memory in gathered segments is its owner's again; and there are no others then.
  const bool may_send =
      received != Turn::kLost && (tx_.is_empty() || core_->state() != QpState::kEnded);
  const Turn sent = may_send ? transmit(lock, now, budget.bytes) : Turn::kIdle;
  finish(lock, now, received == Turn::kLost || sent == Turn::kLost);
  return need(now, received, sent);
}

Result<size_t> SoftQp::receive_from_channel(std::span<const MutBytes> to, Time now) {
  const base::Uncancelled whole;
  return channel_->receive(to, now);
}

Result<size_t> SoftQp::send_to_channel(std::span<const Bytes> from, Time now) {
  const base::Uncancelled whole;
  return channel_->send(from, now);
}

Turn SoftQp::receive(Lock& lock, Time now, uint32_t budget) {
  std::array<uint8_t, kSpillSize> spill;  // NOLINT: deliberately not cleared
  uint32_t octets = 0;
  while (!is_fin_received_ && octets < budget) {
    lock.unlock();
    const std::span<const MutBytes> targets = rx_.targets(spill);
    const size_t wanted = total(targets);
    const Result<size_t> n = receive_from_channel(targets, now);
    if (n && *n != 0) {
      if (tap_ != nullptr) tell(targets, *n, [&](auto seen) { tap_->received(seen, now); });
      nudge_.heard();
      rx_.took(*n, spill);
    } else if (n && tap_ != nullptr) {
      tap_->received_fin(now);
    }
    lock.lock();
    if (!n) return to_int(n.error()) == EAGAIN ? Turn::kIdle : Turn::kLost;
    if (*n == 0) {
      is_fin_received_ = true;
      end(lock, rx_.end(*core_));
      return Turn::kIdle;
    }
    rx_.consume(*core_);
    signal(lock);
    octets += static_cast<uint32_t>(*n);
    if (*n < wanted && channel_->is_emptied_by_short_read()) return Turn::kIdle;
  }
  return is_fin_received_ ? Turn::kIdle : Turn::kMore;
}

Turn SoftQp::transmit(Lock& lock, Time now, uint32_t budget) {
  uint32_t octets = 0;
  while (!is_fin_sent_) {
    const bool is_new = tx_.is_empty();
    if (is_new) {
      if (!core_->has_output()) return Turn::kIdle;
      if (octets >= budget) return Turn::kMore;
      // It may have to ask the kernel.
      lock.unlock();
      const uint32_t limit = mulpdu(now);
      lock.lock();
      note_mulpdu(limit);
      if (!tx_.gather(*core_, limit, budget - octets)) return Turn::kIdle;
    }
    lock.unlock();
    if (is_new) tx_.frame();
    uint32_t fpdus = 0;  // whole ones that the core has not been told of
    int error = 0;
    while (!tx_.is_empty()) {
      const Result<size_t> n = send_to_channel(tx_.pieces(), now);
      if (!n) {
        error = to_int(n.error());
        break;
      }
      if (tap_ != nullptr) tell(tx_.pieces(), *n, [&](auto seen) { tap_->sent(seen, now); });
      nudge_.sent(now);
      octets += static_cast<uint32_t>(*n);
      fpdus += tx_.taken(*n);
    }
    lock.lock();
    tell_sent(lock, fpdus);
    if (error != 0) return error == EAGAIN ? Turn::kBlocked : Turn::kLost;
  }
  return Turn::kIdle;
}

void SoftQp::tell_sent(Lock& lock, uint32_t fpdus) {
  if (fpdus == 0) return;
  core_->segments_sent(fpdus);
  signal(lock);
}

void SoftQp::note_mulpdu(uint32_t mulpdu) {
  core_->counters().max_payload.store(mulpdu - DDP_UNTAGGED_HEADER_SIZE, std::memory_order_relaxed);
}

uint32_t SoftQp::mulpdu(Time now) {
  const uint32_t most = send_markers_ ? MPA_MAX_ULPDU_WITH_MARKERS : MPA_MAX_ULPDU;
  if (max_ulpdu_ == 0) return mpa::mulpdu(channel_->emss(now), send_markers_);
  return std::clamp<uint32_t>(max_ulpdu_, MPA_MIN_MULPDU, most);
}

void SoftQp::finish(Lock& lock, Time now, bool is_lost) {
  settle(lock, now, is_lost);
  flush_late_posts(*core_);
  signal(lock);
}

void SoftQp::settle(Lock& lock, Time now, bool is_lost) {
  if (is_drop_wanted_ || is_lost) {
    channel_->drop(now);
    end(lock, rdmap::LlpEnd::kLost);
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
    end(lock, rdmap::LlpEnd::kLost);
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

void SoftQp::end(Lock& lock, rdmap::LlpEnd how) {
  if (link_) link_->revoke();
  core_->on_llp_end(how);
  signal(lock);
}

void SoftQp::signal(Lock& lock) {
  const bool is_for_sends = send_cq_.take_event();
  const bool is_for_receives = &recv_cq_ != &send_cq_ && recv_cq_.take_event();
  const bool is_for_shared = srq_ != nullptr && srq_->take_event();
  if (!is_for_sends && !is_for_receives && !is_for_shared) return;
  lock.unlock();
  if (is_for_sends) send_cq_.signal();
  if (is_for_receives) recv_cq_.signal();
  if (is_for_shared) srq_->signal();
  lock.lock();
}

void SoftQp::drain() {
  const std::lock_guard lock(engine_.mutex());
  core_->close();
}

void SoftQp::abort(std::optional<TermCode> why) {
  Lock lock(engine_.mutex());
  if (why && channel_) {
    core_->terminate(*why);
    signal(lock);
    return;
  }
  is_drop_wanted_ = true;
  if (is_advancing_) return;
  // Never started: nothing but posted receives to give back.
  if (channel_ && core_->state() != QpState::kEnded) channel_->drop(Time{});
  end(lock, rdmap::LlpEnd::kLost);
  flush_late_posts(*core_);
  signal(lock);
}

Result<Residue, DetachError> SoftQp::detach() {
  Lock lock(engine_.mutex());
  const QpState state = core_->state();
  if (state != QpState::kRts && state != QpState::kClosing) return fail(DetachError::kBadState);
  // Bells that the peer has sent cannot be told from its first bytes.
  if (link_) return fail(DetachError::kBadState);
  if (is_fin_sent_ || is_fin_received_) return fail(DetachError::kBadState);
  is_detaching_ = true;
  core_->close();
  if (is_advancing_ || !core_->wants_close() || !tx_.is_empty() || !rx_.is_between_fpdus()) {
    return fail(DetachError::kBusy);
  }
  end(lock, rdmap::LlpEnd::kFinBetween);
  return Residue{.lower = lower_, .state = {}};
}

QpState SoftQp::state() const {
  return core_->state();
}

TerminateInfo SoftQp::terminate_info() const {
  const std::lock_guard lock(engine_.mutex());
  return core_->terminate_info();
}

}  // namespace ddpsock::engine
