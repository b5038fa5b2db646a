// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/endpoint.h"

#include <cerrno>

namespace ddpsock::message {
namespace {

// As the tools do towards peers that may be Linux siw (doc/decisions/0005-nudge.md).
constexpr Duration kNudge = Duration::from_ms(25);

}  // namespace

Endpoint::~Endpoint() {
  qp_.reset();
  regions_.clear();
  abandon();
}

Status<> Endpoint::open(const Settings& settings, Queue& queue, engine::Srq* receives,
                        bool has_record) {
  queue_ = &queue;
  is_caller_driven_ = settings.is_caller_driven;
  if (record_ == nullptr && has_record) record_ = engine::MessageRecord::open();
  auto qp = domain_.engine().make_qp({.pd = queue.pd(),
                                      .send_cq = &queue.cq(),
                                      .recv_cq = &queue.cq(),
                                      .counters = const_cast<engine::QpCounters*>(&counters()),
                                      .srq = receives,
                                      .send_depth = settings.depths.send,
                                      .recv_depth = settings.depths.receive,
                                      .max_ird = settings.depths.ird,
                                      .max_ord = settings.depths.ord,
                                      .nudge = kNudge});
  if (!qp) return fail_errno(qp.error() == engine::SetupError::kNoMemory ? ENOMEM : EINVAL);
  qp_ = std::move(*qp);
  return {};
}

void Endpoint::begin(int fd, const Startup::Plan& plan) {
  fd_.store(fd);
  phase_.store(Phase::kStarting);
  if (record_ == nullptr) return;
  record_->note_socket(fd, plan.role == Role::kInitiator);
  record_->note_engine("user", progress(), plan.memory.why);
}

void Endpoint::note_up(const Startup& startup) {
  if (record_ == nullptr) return;
  const auto& [role, settings, memory, may_fall_back, is_connecting] = startup.plan();
  // Of a non-blocking connect() the addresses were not known yet, of a second call they are others.
  if (record_->remote.family == 0 || startup.has_fallen_back())
    record_->note_socket(fd(), role == Role::kInitiator);
  record_->note_engine(memory.memory ? "shm" : "user", progress(), memory.why);
  const mpa::Agreement& agreed = startup.agreement();
  record_->has_crc.store(agreed.has_crc, std::memory_order_relaxed);
  record_->mpa_revision.store(static_cast<uint8_t>(agreed.revision), std::memory_order_relaxed);
  record_->state.store(engine::MessageRecord::State::kOpen, std::memory_order_release);
}

void Endpoint::end(int status, const char* reason) {
  if (qp_->state() != engine::QpState::kEnded) qp_->abort(std::nullopt);
  reason_ = reason;
  end_status_.store(status);
  if (record_ != nullptr) record_->note_end(status, end_terminate(), reason);
  phase_.store(Phase::kEnded);
}

void Endpoint::close() {
  if (qp_ && phase() != Phase::kEnded) qp_->abort(std::nullopt);
  phase_.store(Phase::kEnded);
  fd_.store(-1);
}

void Endpoint::abandon() {
  if (record_ != nullptr) record_->release();
}

uint32_t Endpoint::end_terminate() const {
  if (!qp_) return 0;
  const engine::TerminateInfo info = qp_->terminate_info();
  const bool has_terminate = info.reason == engine::EndReason::kTerminateSent ||
                             info.reason == engine::EndReason::kTerminateReceived;
  return has_terminate ? terminate_word(info.terminate.code) : 0;
}

}  // namespace ddpsock::message
