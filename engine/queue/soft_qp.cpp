// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/queue/soft_qp.h"

#include <sched.h>

#include <utility>
#include <variant>

#include "base/cancellation.h"
#include "engine/queue/medium.h"

namespace ddpsock::engine {
namespace {

// About a second.
constexpr int kMostYields = 1'000'000;

// Copying more than this takes longer than a lock should be held for it.
constexpr uint64_t kMostUnderLock = 2048;

bool is_short(const SendWr& wr) {
  std::span<const Bytes> payload;
  if (const auto* send = std::get_if<op::Send>(&wr.op)) payload = send->payload;
  if (const auto* write = std::get_if<op::Write>(&wr.op)) payload = write->payload;
  uint64_t left = kMostUnderLock;
  for (const Bytes range : payload) {
    if (range.size() > left) return false;
    left -= range.size();
  }
  return true;
}

// What the core is to keep of an agreed IRD or ORD. It has room of its own for a Read RTR.
uint32_t depth(Rtr rtr, uint32_t value, uint32_t most) {
  if (value == mpa::kNotNegotiated) return most;
  const bool is_for_rtr = rtr == Rtr::kRead && value == 1 && most == 0;
  return is_for_rtr ? 0 : value;
}

// MPA and RDMAP know nothing of each other; both know the four RTR messages.
constexpr rdmap::Rtr to_rdmap(Rtr rtr) {
  static_assert(static_cast<int>(Rtr::kSend) == static_cast<int>(rdmap::Rtr::kSend) &&
                static_cast<int>(Rtr::kWrite) == static_cast<int>(rdmap::Rtr::kWrite) &&
                static_cast<int>(Rtr::kRead) == static_cast<int>(rdmap::Rtr::kRead));
  return static_cast<rdmap::Rtr>(rtr);
}

}  // namespace

SoftQp::SoftQp(SoftEngine& engine, const QpAttr& attr, const rdmap::QpAttr& core)
    : engine_(engine),
      attr_(attr),
      queues_{static_cast<SoftCq&>(*attr.send_cq), static_cast<SoftCq&>(*attr.recv_cq),
              static_cast<SoftSrq*>(attr.srq)} {
  core_.emplace(core, engine.stags(), queues_.send.core(), queues_.receive.core(),
                queues_.shared != nullptr ? &queues_.shared->core() : nullptr);
}

SoftQp::~SoftQp() {
  {
    const std::lock_guard lock(engine_.mutex());
    if (carrier_) carrier_->revoke();
    core_.reset();
  }
  engine_.leave_pd(attr_.pd);
}

Status<StartError> SoftQp::start(const Start& start) {
  auto carrier = start.medium != nullptr ? start.medium->open(engine_, start, attr_)
                                         : engine_.open_carrier(start, attr_);
  if (!carrier) return fail(carrier.error());
  const Agreement& agreed = start.agreed;

  Lock lock(engine_.mutex());
  if (core_->state() != QpState::kIdle) return fail(StartError::kBadState);
  const uint32_t ird = depth(agreed.rtr, agreed.ird, attr_.max_ird);
  const uint32_t ord = depth(agreed.rtr, agreed.ord, attr_.max_ord);
  if (ird > attr_.max_ird || ord > attr_.max_ord) return fail(StartError::kDepths);
  carrier_ = std::move(*carrier);
  Carrier::note_mulpdu(*core_, carrier_->mulpdu(Time{}));
  direct_ = carrier_->direct();
  way_.emplace(*core_, engine_.stags());
  core_->start({agreed.is_initiator, to_rdmap(agreed.rtr), ird, ord});
  queues_.signal(lock);
  polled_.store(carrier_.get(), std::memory_order_release);
  return {};
}

Posted SoftQp::send(std::span<const SendWr> work) {
  return core_->post_send(work);
}

Posted SoftQp::recv(std::span<const RecvWr> work) {
  return core_->post_recv(work);
}

Need SoftQp::advance(Time now, Budget budget) {
  Lock lock = engine_.lock(budget.may_wait);
  if (!lock) return {.is_busy = true, .deadline = now};
  if (is_advancing_) return {.is_busy = true};
  if (!carrier_ || core_->state() == QpState::kEnded) return {};
  core_->take_posted();
  is_advancing_ = true;
  Pass pass{.core = *core_,
            .lock = lock,
            .queues = queues_,
            .now = now,
            .budget = budget,
            .is_fin_sent = is_fin_sent_,
            .is_fin_received = is_fin_received_};
  const Turn received = receive(pass);
  // Once ended, memory in gathered segments is its owner's again.
  const bool may_send = received != Turn::kLost && core_->state() != QpState::kEnded;
  const Turn sent = may_send ? carrier_->transmit(pass) : Turn::kIdle;
  settle(lock, now, received == Turn::kLost || sent == Turn::kLost);
  finish_ended();
  queues_.signal(lock);
  is_advancing_ = false;
  return need(pass, received, sent);
}

bool SoftQp::has_news() const {
  const Carrier* carrier = polled_.load(std::memory_order_acquire);
  return carrier == nullptr || carrier->has_news();
}

uint32_t SoftQp::send_directly(std::span<const SendWr> work) {
  if (direct_ == nullptr || !way_->may_send()) return 0;
  uint32_t sent = 0;
  bool has_segments = false;
  for (const SendWr& wr : work) {
    if (reach_directly(wr)) {
      ++sent;
      if (!way_->may_send()) break;
      continue;
    }
    rdmap::DirectSegment segment;  // NOLINT: cut() fills it
    const bool is_sent =
        wr.is_signalled ? send_signalled_directly(wr) : direct_->send_directly(*way_, wr, segment);
    if (!is_sent) break;
    has_segments = true;
    ++sent;
  }
  if (has_segments) direct_->finish_sends();
  return sent;
}

// What tells a completion does so with the lock, and copies much without.
//
// What the peer had sent before it wrote what is found there must be in place before that is told.
// A Read that finds such goes again, the usual way, where the answer comes behind it.
bool SoftQp::reach_directly(const SendWr& wr) {
  rdmap::Aim aim;  // NOLINT: aim() fills it
  if (!way_->aim(wr, aim)) return false;
  uint8_t* there = direct_->locate(aim);
  const bool is_write = aim.needed == rdmap::kRemoteWrite;
  if (!is_write && direct_->has_arrived()) return false;
  if (there == nullptr) return fetch_directly(wr, aim);
  if (wr.is_signalled && !way_->reserve()) return false;
  const bool needs_lock = wr.is_signalled && aim.length <= kMostUnderLock;
  Lock lock = needs_lock ? engine_.lock(false) : Lock(engine_.mutex(), std::defer_lock);
  uint64_t found = 0;
  const bool is_done = (lock || !needs_lock) && way_->reach(wr, there, needs_lock, found) &&
                       (aim.needed != rdmap::kRemoteRead || !direct_->has_arrived());
  if (!is_done) {
    if (wr.is_signalled) way_->release();
    return false;
  }
  way_->note_reached(aim);
  const bool must_take_in = !is_write && direct_->has_arrived();
  if (!lock && (wr.is_signalled || must_take_in)) lock.lock();
  if (must_take_in) take_in(lock);
  if (wr.is_signalled) way_->complete(wr, aim, found);
  if (lock) queues_.signal(lock);
  return true;
}

bool SoftQp::fetch_directly(const SendWr& wr, const rdmap::Aim& aim) {
  if (aim.needed != rdmap::kRemoteRead || !direct_->is_fetching_faster()) return false;
  if (wr.is_signalled && !way_->reserve()) return false;
  const auto sink = way_->pin_sink(wr);
  const bool is_done = sink && direct_->fetch(aim, *sink) && !direct_->has_arrived();
  if (sink) way_->unpin_sink(wr);
  if (!is_done) {
    if (wr.is_signalled) way_->release();
    return false;
  }
  way_->note_reached(aim);
  if (!wr.is_signalled) return true;
  Lock lock(engine_.mutex());
  way_->complete(wr, aim, 0);
  queues_.signal(lock);
  return true;
}

void SoftQp::take_in(Lock& lock) {
  is_advancing_ = true;
  direct_->take_in(*core_, lock);
  is_advancing_ = false;
}

// What has been sent must be told, so the lock comes first; and then it is for few bytes.
bool SoftQp::send_signalled_directly(const SendWr& wr) {
  if (!is_short(wr)) return false;
  Lock lock = engine_.lock(false);
  rdmap::DirectSegment segment;  // NOLINT: cut() fills it
  if (!lock || !direct_->send_directly(*way_, wr, segment)) return false;
  way_->complete(wr, segment);
  queues_.signal(lock);
  return true;
}

uint32_t SoftQp::receive_directly(std::span<Completion> out) {
  // What the queue holds came before.
  if (direct_ == nullptr || queues_.receive.has_any()) return 0;
  return direct_->receive_directly(*way_, out);
}

Turn SoftQp::receive(Pass& pass) {
  const Received received = carrier_->receive(pass);
  if (received.end) {
    is_fin_received_ = pass.is_fin_received = true;
    end(pass.lock, *received.end);
  }
  return received.turn;
}

void SoftQp::settle(Lock& lock, Time now, bool is_lost) {
  if (is_drop_wanted_ || is_lost) {
    carrier_->drop(now);
    end(lock, rdmap::LlpEnd::kLost);
    return;
  }
  if (core_->wants_close() && !is_fin_sent_) {
    carrier_->shut_write(now);
    is_fin_sent_ = true;
  }
  // The wait for the peer begins with our FIN, or with a Terminate that it does not read.
  const bool is_waiting = is_fin_sent_ || core_->state() == QpState::kTerminate;
  if (is_waiting && linger_end_ == kNever) linger_end_ = now + attr_.linger;
  if (core_->state() != QpState::kEnded && now >= linger_end_) {
    carrier_->drop(now);
    end(lock, rdmap::LlpEnd::kLost);
  }
}

Need SoftQp::need(const Pass& pass, Turn received, Turn sent) {
  if (core_->state() == QpState::kEnded) return {};
  Need n{.wants_readable = !is_fin_received_, .deadline = linger_end_};
  // A post or an abort may have come while bytes moved without the lock.
  const bool has_new_work =
      (sent == Turn::kIdle && !is_fin_sent_ && core_->has_output()) || core_->has_local_work();
  if (received == Turn::kMore || sent == Turn::kMore || has_new_work || is_drop_wanted_)
    n.deadline = pass.now;
  carrier_->add_to(n, sent, pass);
  return n;
}

void SoftQp::end(Lock& lock, rdmap::LlpEnd how) {
  carrier_->revoke();
  core_->on_llp_end(how);
  queues_.signal(lock);
}

// Of one that has ended: waits for threads that were let in to post before, so that all that was
// accepted completes before the end is told. Who is between the two steps of posting needs nothing
// of ours.
void SoftQp::finish_ended() {
  if (core_->state() != QpState::kEnded) return;
  for (int i = 0; i < kMostYields && core_->has_late_posts(); ++i) {
    sched_yield();
    core_->take_posted();
  }
  if (attr_.event_fd >= 0 && !std::exchange(is_end_told_, true)) base::raise_event(attr_.event_fd);
}

void SoftQp::drain() {
  const std::lock_guard lock(engine_.mutex());
  core_->close();
}

void SoftQp::abort(std::optional<TermCode> why) {
  Lock lock(engine_.mutex());
  if (why && carrier_) {
    core_->terminate(*why);
    queues_.signal(lock);
    return;
  }
  is_drop_wanted_ = true;
  if (is_advancing_) return;
  if (carrier_) {
    if (core_->state() != QpState::kEnded) carrier_->drop(Time{});
    carrier_->revoke();
  }
  // Never started: nothing but posted receives to give back.
  core_->on_llp_end(rdmap::LlpEnd::kLost);
  finish_ended();
  queues_.signal(lock);
}

Capabilities SoftQp::capabilities() const {
  const Carrier* carrier = polled_.load(std::memory_order_acquire);
  if (carrier == nullptr) return engine_.capabilities();
  const Capabilities all = kSoftCapabilities | carrier->capabilities();
  return direct_ != nullptr ? all | Capabilities{Capability::kDirect} : all;
}

QpState SoftQp::state() const {
  return core_->state();
}

TerminateInfo SoftQp::terminate_info() const {
  const std::lock_guard lock(engine_.mutex());
  return core_->terminate_info();
}

}  // namespace ddpsock::engine
