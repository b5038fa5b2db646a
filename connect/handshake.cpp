// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "connect/handshake.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/sys.h"
#include "mpa/format.h"

namespace ddpsock::connecting {
namespace {

// poll() counts milliseconds in an int, and a clock set wrong must not hide a deadline.
constexpr int64_t kLongestPollMs = 1'000;

}  // namespace

engine::Parameters parameters_of(const mpa::Agreement& agreed, uint32_t max_ulpdu) {
  const auto depth = [](uint16_t value) {
    return value == mpa::kNotNegotiated ? engine::Parameters::kNotAgreed : value;
  };
  return {.ird = depth(agreed.ird),
          .ord = depth(agreed.ord),
          .is_initiator = agreed.is_initiator,
          .rtr = to_rdmap(agreed.rtr),
          .has_crc = agreed.has_crc,
          .send_markers = agreed.send_markers,
          .receive_markers = agreed.receive_markers,
          .revision = agreed.revision,
          .max_ulpdu = max_ulpdu};
}

mpa::StartupState Handshake::state() const {
  return std::visit([](const auto& e) { return e.state(); }, end_);
}
const mpa::Agreement& Handshake::agreement() const {
  return std::visit([](const auto& e) -> const mpa::Agreement& { return e.agreement(); }, end_);
}
const mpa::StartupFailure& Handshake::failure() const {
  return std::visit([](const auto& e) -> const mpa::StartupFailure& { return e.failure(); }, end_);
}

engine::Need Handshake::advance(Time now) {
  std::visit([now](auto& e) { e.on_deadline(now); }, end_);
  for (bool is_moving = true; is_moving;) {
    switch (state()) {
      case mpa::StartupState::kSending:
        is_moving = send(now);
        break;
      case mpa::StartupState::kReading:
        is_moving = read(now);
        break;
      case mpa::StartupState::kDeciding:
      case mpa::StartupState::kAgreed:
      case mpa::StartupState::kFailed:
        is_moving = false;
        break;
    }
  }
  return {.wants_readable = state() == mpa::StartupState::kReading,
          .wants_writable = state() == mpa::StartupState::kSending,
          .deadline = std::visit([](const auto& e) { return e.deadline(); }, end_)};
}

mpa::StartupState Handshake::run() {
  for (;;) {
    const engine::Need need = advance(base::now());
    if (!need.wants_readable && !need.wants_writable) return state();
    pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
    if (need.wants_writable) entry.events = POLLOUT;
    const int64_t left = (need.deadline - base::now()).ceil_ms();
    base::sys.poll(&entry, 1, static_cast<int>(std::min(left, kLongestPollMs)));
  }
}

Status<engine::StartError> Handshake::start(engine::Qp& qp, engine::Start wish) const {
  const bool has_failed = state() == mpa::StartupState::kFailed;
  wish.lower = engine::LowerLayer{fd_};
  wish.parameters = parameters_of(has_failed ? failure().terminate_with() : agreement(),
                                  wish.parameters.max_ulpdu);
  const auto started = qp.start(wish);
  if (started && has_failed) qp.abort(rdmap::TermCode::mpa(*failure().term_code));
  return started;
}

// Both: whether anything was moved.
bool Handshake::send(Time now) {
  const Bytes frame = std::visit([](const auto& e) { return e.output(); }, end_);
  const ssize_t n = base::sys.send(fd_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno != EINTR) std::visit([](auto& e) { e.on_end(mpa::StreamEnd::kReset); }, end_);
    return true;
  }
  std::visit([&](auto& e) { e.sent(static_cast<size_t>(n), now); }, end_);
  return true;
}

// Looks first and then takes only what belongs to the frame.
bool Handshake::read(Time now) {
  std::array<uint8_t, MPA_MAX_STARTUP_SIZE + 1> seen;
  const ssize_t n = base::sys.recv(fd_, seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno != EINTR) std::visit([](auto& e) { e.on_end(mpa::StreamEnd::kReset); }, end_);
    return true;
  }
  if (n == 0) {
    std::visit([](auto& e) { e.on_end(mpa::StreamEnd::kFin); }, end_);
    return true;
  }
  const size_t taken = std::visit(
      [&](auto& e) { return e.input(Bytes(seen).first(static_cast<size_t>(n)), now); }, end_);
  for (size_t left = taken; left != 0;) {
    const ssize_t k = base::sys.recv(fd_, seen.data(), left, MSG_DONTWAIT);
    if (k > 0) {
      left -= static_cast<size_t>(k);
    } else if (k == 0 || errno != EINTR) {
      std::visit([](auto& e) { e.on_end(mpa::StreamEnd::kReset); }, end_);
      return true;
    }
  }
  return taken != 0;
}

}  // namespace ddpsock::connecting
