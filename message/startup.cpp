// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/startup.h"

#include <cerrno>
#include <new>
#include <utility>

#include "engine/user/user_engine.h"
#include "stream/format.h"

namespace ddpsock::message {
namespace {

// An accepted connection waits so long for its program.
constexpr Duration kReplyTime = Duration::from_ms(30'000);

int errno_of(mpa::StartupError error) {
  switch (error) {
    case mpa::StartupError::kRejected:
      return ECONNREFUSED;
    case mpa::StartupError::kTimedOut:
      return ETIMEDOUT;
    case mpa::StartupError::kClosed:
      return ECONNRESET;
    default:
      return EPROTO;
  }
}

int errno_of(engine::StartError error) {
  return error == engine::StartError::kNoMemory ? ENOMEM : ECONNRESET;
}

}  // namespace

void Startup::begin(Plan plan, bool is_held) {
  plan_ = std::move(plan);
  is_held_.store(is_held);
}

Startup::State Startup::fail(int error, const char* reason) {
  error_ = error;
  reason_ = reason;
  return State::kFailed;
}

bool Startup::make_handshake(int fd, Time now) {
  const Settings& wished = plan_.settings;
  if (plan_.role == Role::kResponder) {
    const mpa::ResponderConfig config{.wants_crc = wished.wants_crc,
                                      .needs_markers = wished.wants_markers,
                                      .timeouts = {.reply = kReplyTime}};
    handshake_.reset(new (std::nothrow)
                         connecting::Handshake(fd, mpa::Responder(config, now), &plan_.memory));
  } else {
    const connecting::Call call{.startup = {.wants_crc = wished.wants_crc,
                                            .needs_markers = wished.wants_markers,
                                            .is_peer_to_peer = true,
                                            .rtr_offer = {.has_write = true, .has_read = true},
                                            .ird = static_cast<uint16_t>(wished.depths.ird),
                                            .ord = static_cast<uint16_t>(wished.depths.ord),
                                            .max_ird = static_cast<uint16_t>(wished.depths.ird),
                                            .private_data = wished.private_data},
                                .may_fall_back = plan_.may_fall_back,
                                .is_connecting = plan_.is_connecting};
    handshake_.reset(new (std::nothrow) connecting::Handshake(fd, call, &plan_.memory));
  }
  return handshake_ != nullptr;
}

bool Startup::accept(Time now) {
  const Settings& wished = plan_.settings;
  return handshake_->responder()
      ->accept({.ird = static_cast<uint16_t>(wished.depths.ird),
                .ord = static_cast<uint16_t>(wished.depths.ord),
                .private_data = wished.private_data},
               now)
      .has_value();
}

Startup::State Startup::advance(int fd, engine::Qp& qp, Time now, engine::Need& need) {
  need = {};
  if (!handshake_) {
    // The bytes of an upgraded connection are not ours before the program says so.
    if (is_held() && plan_.role == Role::kInitiator) return State::kUnderWay;
    if (!make_handshake(fd, now)) return fail(ENOMEM, "no memory for start-up");
  }
  need = handshake_->advance(now);
  has_fallen_back_ = has_fallen_back_ || handshake_->has_fallen_back();
  if (handshake_->state() == mpa::StartupState::kDeciding && !is_held()) {
    // set_private_data() has seen to the only reason there could be.
    if (!accept(now)) return fail(EINVAL, "the private data does not fit");
    need = handshake_->advance(now);
  }
  if (handshake_->state() == mpa::StartupState::kAgreed) return start(qp);
  return handshake_->state() == mpa::StartupState::kFailed ? fail_handshake(qp) : State::kUnderWay;
}

Startup::State Startup::start(engine::Qp& qp) {
  agreement_ = handshake_->agreement();
  const auto started = std::exchange(handshake_, nullptr)->start(qp);
  if (!started) return fail(errno_of(started.error()), "the connection was lost in start-up");
  is_up_ = true;
  return State::kUp;
}

Startup::State Startup::fail_handshake(engine::Qp& qp) {
  const auto handshake = std::exchange(handshake_, nullptr);
  if (const int error = handshake->tcp_error(); error != 0) {
    socket_error_.store(error);
    return fail(error, "TCP did not connect");
  }
  const mpa::StartupFailure& failure = handshake->failure();
  is_untouched_ = failure.error == mpa::StartupError::kNotMpa && plan_.role == Role::kResponder;
  const bool is_refusing = handshake->start(qp).has_value();
  fail(errno_of(failure.error), mpa::to_text(failure.error));
  return is_refusing ? State::kRefusing : State::kFailed;
}

// A stream has done its start-up, or does it with its own first bytes.
Startup::State Startup::advance_on_stream(int fd, engine::OneSidedWay& stream, engine::Qp& qp,
                                          engine::Need& need) {
  need = {.wants_readable = true};
  const auto has_crc = stream.has_crc(fd);
  if (!has_crc && to_int(has_crc.error()) == EAGAIN) return State::kUnderWay;
  if (!has_crc) return fail(to_int(has_crc.error()), "the peer has no one-sided operations");
  // Nothing of ours needs the peer to speak first.
  agreement_ = {.is_initiator = true,
                .revision = MPA_REVISION_ENHANCED,
                .has_crc = *has_crc,
                .ird = DDPSOCK_ONE_SIDED_DEPTH,
                .ord = DDPSOCK_ONE_SIDED_DEPTH};
  const engine::BetweenChunks medium(stream);
  const auto started =
      qp.start({.lower = engine::lower_layer_of(fd), .medium = &medium, .agreed = agreement_});
  if (!started) return fail(errno_of(started.error()), "the connection was lost");
  is_up_ = true;
  return State::kUp;
}

Result<mpa::PrivateData> Startup::peer_private_data() const {
  if (is_up_) return agreement_.private_data;
  const mpa::Responder* responder = handshake_ ? handshake_->responder() : nullptr;
  if (responder == nullptr || !responder->has_request()) return fail_errno(EAGAIN);
  return *mpa::PrivateData::from(responder->request().private_data);
}

}  // namespace ddpsock::message
