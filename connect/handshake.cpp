// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "connect/handshake.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>

#include "base/socket_option.h"
#include "base/sys.h"
#include "connect/wait.h"
#include "engine/user/user_engine.h"
#include "mpa/format.h"

namespace ddpsock::connecting {
namespace {

// Once TCP is connected, and it has not failed, one of the two is there.
template <typename End, typename Verb>
auto at_end(End& end, const Verb& verb) {
  if (auto* initiator = std::get_if<mpa::Initiator>(&end)) return verb(*initiator);
  return verb(*std::get_if<mpa::Responder>(&end));
}

void set_no_delay(int fd) {
  base::set_socket_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace

Handshake::Handshake(int fd, const Call& call, Memory* memory)
    : fd_(fd), call_(call), memory_(memory) {
  set_no_delay(fd);
}

Handshake::Handshake(int fd, const mpa::Responder& responder, Memory* memory)
    : fd_(fd), memory_(memory), end_(responder) {
  set_no_delay(fd);
}

mpa::StartupState Handshake::state() const {
  if (std::holds_alternative<Connecting>(end_)) return mpa::StartupState::kSending;
  if (std::holds_alternative<mpa::StartupFailure>(end_)) return mpa::StartupState::kFailed;
  return at_end(end_, [](const auto& e) { return e.state(); });
}
const mpa::Agreement& Handshake::agreement() const {
  return *at_end(end_, [](const auto& e) { return &e.agreement(); });
}
const mpa::StartupFailure& Handshake::failure() const {
  if (const auto* failure = std::get_if<mpa::StartupFailure>(&end_)) return *failure;
  return *at_end(end_, [](const auto& e) { return &e.failure(); });
}

void Handshake::give_up_memory(const char* why) const {
  if (memory_ != nullptr) *memory_ = {.memory = nullptr, .why = why};
}

void Handshake::fail_tcp(int error) {
  tcp_error_ = error;
  end_ = mpa::StartupFailure{};
}

// Then end_ has what comes next: the initiator, or why there is none.
bool Handshake::is_connected(Time now) {
  // What tells nothing fails with the first byte.
  const auto info = base::socket_option<tcp_info>(fd_, IPPROTO_TCP, TCP_INFO);
  if (info && (info->tcpi_state == TCP_SYN_SENT || info->tcpi_state == TCP_SYN_RECV)) {
    if (tcp_deadline_ == kNever && call_.tcp_timeout.ns != 0)
      tcp_deadline_ = now + call_.tcp_timeout;
    if (now < tcp_deadline_) return false;
    fail_tcp(ETIMEDOUT);
    return true;
  }
  // One that was connected, and was reset since, fails as start-up does.
  const bool is_calling = call_.is_connecting || has_fallen_back_;
  if (is_calling && info && info->tcpi_state == TCP_CLOSE) {
    const int error = base::socket_option(fd_, SOL_SOCKET, SO_ERROR).value_or(0);
    fail_tcp(error != 0 ? error : ECONNREFUSED);
    return true;
  }
  const auto initiator = mpa::Initiator::start(call_.startup, now);
  if (initiator) {
    end_ = *initiator;
  } else {
    end_ = mpa::StartupFailure::of(initiator.error());
  }
  peer_length_ = sizeof peer_;
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&peer_), &peer_length_) != 0) peer_length_ = 0;
  return true;
}

bool Handshake::call_again() {
  const bool may_call = call_.may_fall_back && !has_fallen_back_ && peer_length_ != 0;
  if (!may_call || tcp_error_ != 0 || !failure().can_retry_with_revision_1) return false;
  const int flags = base::sys.fcntl(fd_, F_GETFL);
  if (flags < 0) return false;
  // What the peer has joined in the first call it cannot join in the second.
  give_up_memory("the peer speaks revision 1 of MPA");
  // Whoever is here waits otherwise. A program whose socket blocks is inside connect() meanwhile.
  const bool is_blocking = (flags & O_NONBLOCK) == 0;
  if (is_blocking) base::sys.fcntl(fd_, F_SETFL, flags | O_NONBLOCK);
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  const auto* peer = reinterpret_cast<const sockaddr*>(&peer_);
  const bool is_calling = base::sys.connect(fd_, &nobody, sizeof nobody) == 0 &&
                          (base::sys.connect(fd_, peer, peer_length_) == 0 || errno == EINPROGRESS);
  if (is_blocking) base::sys.fcntl(fd_, F_SETFL, flags);
  if (!is_calling) return false;
  has_fallen_back_ = true;
  call_.startup.revision = MPA_REVISION_IETF;
  call_.startup.is_peer_to_peer = false;
  tcp_deadline_ = kNever;
  end_ = Connecting{};
  return true;
}

engine::Need Handshake::advance(Time now) {
  do {
    if (std::holds_alternative<Connecting>(end_) && !is_connected(now))
      return {.wants_writable = true, .deadline = tcp_deadline_};
    if (std::holds_alternative<mpa::StartupFailure>(end_)) return {};
    at_end(end_, [now](auto& e) { e.on_deadline(now); });
    for (bool is_moving = true; is_moving;) {
      const mpa::StartupState at = state();
      is_moving = (at == mpa::StartupState::kSending && send(now)) ||
                  (at == mpa::StartupState::kReading && read(now));
    }
  } while (state() == mpa::StartupState::kFailed && call_again());
  return {.wants_readable = state() == mpa::StartupState::kReading,
          .wants_writable = state() == mpa::StartupState::kSending,
          .deadline = at_end(end_, [](const auto& e) { return e.deadline(); })};
}

mpa::StartupState Handshake::run() {
  for (;;) {
    const engine::Need need = advance(base::now());
    if (!need.wants_readable && !need.wants_writable) return state();
    wait_for({{fd_, need}}, kNever);
  }
}

Status<engine::StartError> Handshake::start(engine::Qp& qp, uint32_t max_ulpdu) const {
  const bool has_failed = state() == mpa::StartupState::kFailed;
  if (has_failed && !failure().term_code) return fail(engine::StartError::kBadLowerLayer);
  engine::Start start{.lower = engine::LowerLayer{fd_},
                      .agreed = has_failed ? failure().terminate_with() : agreement(),
                      .max_ulpdu = max_ulpdu};
  std::optional<engine::InMemory> medium;
  if (memory_ != nullptr && memory_->memory) {
    // Only a byte stream has them.
    const bool has_markers = start.agreed.send_markers || start.agreed.receive_markers;
    const bool is_joined = memory_->memory->settle();
    if (has_markers) {
      give_up_memory("MPA markers are for byte streams");
    } else if (!is_joined) {
      give_up_memory("the peer has not joined it");
    } else {
      start.medium = &medium.emplace(*memory_->memory);
    }
  }
  const auto started = qp.start(start);
  if (started && has_failed) qp.abort(rdmap::TermCode::mpa(*failure().term_code));
  return started;
}

// Both: whether anything was moved.
bool Handshake::send(Time now) {
  const Bytes frame = at_end(end_, [](const auto& e) { return e.output(); });
  const ssize_t n = base::sys.send(fd_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno != EINTR) at_end(end_, [](auto& e) { e.on_end(mpa::StreamEnd::kReset); });
    return true;
  }
  at_end(end_, [&](auto& e) { e.sent(static_cast<size_t>(n), now); });
  return true;
}

// Looks first and then takes only what belongs to the frame.
bool Handshake::read(Time now) {
  std::array<uint8_t, MPA_MAX_STARTUP_SIZE + 1> seen;
  const ssize_t n = base::sys.recv(fd_, seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) {
    const auto end = n == 0 ? mpa::StreamEnd::kFin : mpa::StreamEnd::kReset;
    at_end(end_, [end](auto& e) { e.on_end(end); });
    return true;
  }
  const size_t taken = at_end(
      end_, [&](auto& e) { return e.input(Bytes(seen).first(static_cast<size_t>(n)), now); });
  for (size_t left = taken; left != 0;) {
    const ssize_t k = base::sys.recv(fd_, seen.data(), left, MSG_DONTWAIT);
    if (k > 0) {
      left -= static_cast<size_t>(k);
    } else if (k == 0 || errno != EINTR) {
      at_end(end_, [](auto& e) { e.on_end(mpa::StreamEnd::kReset); });
      return true;
    }
  }
  return taken != 0;
}

}  // namespace ddpsock::connecting
