// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/calls/ddp_options.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <optional>

#include "ddpsock/ddpsock.h"
#include "shim/connection.h"
#include "shim/libc_edge.h"
#include "shim/log.h"
#include "shim/message_socket.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

constexpr size_t kEngineNameBytes = sizeof(ddp_status::engine);

int copy_out(const void* answer, size_t size, void* value, socklen_t* length) {
  const size_t room = std::min<size_t>(*length, size);
  memcpy(value, answer, room);
  *length = static_cast<socklen_t>(room);
  return 0;
}

bool is_open(int fd) {
  return is_ours(fd) || real.fcntl(fd, F_GETFD) >= 0;
}

bool is_connected(int fd) {
  sockaddr_storage peer;
  socklen_t length = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

bool is_listening(int fd) {
  return int_option(fd, SOL_SOCKET, SO_ACCEPTCONN) != 0;
}

// The entry of `fd`, made if there is none.
bool ensure_entry(int fd) {
  return is_ours(fd) || enter_fd(fd) != nullptr;
}

std::optional<engine::Role> role_of(int fd, int role) {
  if (role == DDP_ROLE_INITIATOR) return engine::Role::kInitiator;
  if (role == DDP_ROLE_RESPONDER) return engine::Role::kResponder;
  switch (hint_of(fd).origin) {
    case Origin::kConnected:
      return engine::Role::kInitiator;
    case Origin::kAccepted:
      return engine::Role::kResponder;
    case Origin::kUnknown:
      break;
  }
  return std::nullopt;
}

int enter_message_mode(int fd, int role_wanted) {
  if (!ensure_entry(fd)) return fail(ENOBUFS);
  SocketUse use(fd);
  if (!use) return fail(EBADF);
  if (has_live_stream(use.phase())) return fail(EALREADY);
  const bool is_upgrade = is_connected(fd);
  const std::optional<engine::Role> role = role_of(fd, role_wanted);
  if (is_upgrade && !role) return fail(EDESTADDRREQ);
  if (use.phase() == Phase::kListening) forget_listener(fd);
  const int error = is_upgrade ? upgrade_to_messages(use, fd, *role) : wish_messages(use, fd);
  if (error == 0 && is_listening(fd)) listen_for_messages(*use, fd);
  return error == 0 ? 0 : fail(error);
}

// Both sides have agreed by the program's own protocol that what follows is MPA.
int upgrade(int fd, int role_wanted) {
  if (is_ours(fd)) {
    const SocketUse use(fd);
    if (use && has_live_stream(use.phase())) return fail(EALREADY);
  }
  const std::optional<engine::Role> role = role_of(fd, role_wanted);
  if (!role) return fail(EDESTADDRREQ);
  if (!ensure_entry(fd)) return fail(ENOBUFS);
  SocketUse use(fd);
  if (!use) return fail(EBADF);
  use->wish.store(Wish::kStream, std::memory_order_relaxed);
  use->mode.store(Mode::kRequired, std::memory_order_relaxed);
  use->reason.store("the program upgraded the connection", std::memory_order_relaxed);
  use->is_nonblocking.store((real.fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, std::memory_order_relaxed);
  if (!open_stream(*use, fd, *role, engine::Peer::kRequired, Phase::kStream)) return fail(ENOBUFS);
  log_connection("upgrade", fd, "stream", engine_asked_for(*use),
                 "the program upgraded the connection");
  if (*role == engine::Role::kResponder) return 0;
  const int error = use->stream.load(std::memory_order_acquire)->on_connected(fd, false).error;
  return error == 0 ? 0 : fail(error);
}

int downgrade(int fd) {
  if (!is_ours(fd)) return 0;
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase())) return 0;
  const engine::StreamState state = use->stream.load(std::memory_order_acquire)->status().state;
  if (state != engine::StreamState::kFailed && state != engine::StreamState::kPlain)
    return fail(EISCONN);
  make_plain(*use, fd, "the program took the connection back as plain TCP");
  return 0;
}

int set_wish(int fd, Wish wish) {
  if (!ensure_entry(fd)) return fail(ENOBUFS);
  const SocketUse use(fd);
  if (!use) return fail(EBADF);
  if (has_live_stream(use.phase())) return fail(EALREADY);
  const Wish before = use->wish.exchange(wish, std::memory_order_relaxed);
  if (!is_listening(fd) || (before == wish && use.phase() == Phase::kListening)) return 0;
  const bool was_registered = use.phase() == Phase::kListening && before != Wish::kOff;
  use->phase.store(Phase::kListening, std::memory_order_release);
  if (was_registered) forget_listener(fd);
  if (wish != Wish::kOff) register_listener(fd, wish, Opened::kHere);
  return 0;
}

int set_mode(int fd, const void* value, socklen_t length) {
  ddp_mode wanted{.mode = 0, .role = DDP_ROLE_AUTO};
  if (length < sizeof(int)) return fail(EINVAL);
  memcpy(&wanted, value, length >= sizeof(ddp_mode) ? sizeof(ddp_mode) : sizeof(int));
  if (wanted.role < DDP_ROLE_AUTO || wanted.role > DDP_ROLE_RESPONDER) return fail(EINVAL);
  if (wanted.mode < DDP_MODE_OFF || wanted.mode > DDP_MODE_MESSAGE) return fail(EINVAL);
  if (!is_tcp_socket(fd)) return fail(EOPNOTSUPP);
  if (wanted.mode != DDP_MODE_OFF && has_kernel_option(fd)) return fail(EOPNOTSUPP);
  if (wanted.mode == DDP_MODE_MESSAGE) return enter_message_mode(fd, wanted.role);
  if (const SocketUse use(fd); use && use.phase() == Phase::kMessage) {
    const int error = leave_message_mode(use, fd);
    if (error != 0) return fail(error);
    if (is_connected(fd) && wanted.mode == DDP_MODE_OFF) return 0;
  }
  if (is_connected(fd))
    return wanted.mode == DDP_MODE_OFF ? downgrade(fd) : upgrade(fd, wanted.role);
  return set_wish(fd, wanted.mode == DDP_MODE_OFF ? Wish::kOff : Wish::kStream);
}

std::optional<EngineChoice> engine_choice(const char* name) {
  if (strcmp(name, "auto") == 0) return EngineChoice::kAuto;
  if (strcmp(name, "user") == 0) return EngineChoice::kUser;
  if (strcmp(name, "shm") == 0) return EngineChoice::kShm;
  return std::nullopt;
}

int set_engine(int fd, const void* value, socklen_t length) {
  char name[kEngineNameBytes] = {};
  if (length == 0 || length > sizeof(name)) return fail(EINVAL);
  memcpy(name, value, length);
  if (name[sizeof(name) - 1] != '\0') return fail(EINVAL);
  const auto choice = engine_choice(name);
  if (!choice) return fail(EINVAL);
  if (is_connected(fd)) return fail(EISCONN);
  if (!is_tcp_socket(fd)) return fail(EOPNOTSUPP);
  if (!ensure_entry(fd)) return fail(ENOBUFS);
  const SocketUse use(fd);
  if (!use) return fail(EBADF);
  use->engine.store(*choice, std::memory_order_relaxed);
  return 0;
}

int set_crc(int fd, const void* value, socklen_t length) {
  int wants_crc;
  if (length < sizeof(wants_crc)) return fail(EINVAL);
  memcpy(&wants_crc, value, sizeof(wants_crc));
  if (!is_tcp_socket(fd)) return fail(EOPNOTSUPP);
  if (is_ours(fd)) {
    const SocketUse use(fd);
    if (use && has_live_stream(use.phase())) return fail(EISCONN);
    if (message::Connection* c = use ? message_connection(use) : nullptr; c != nullptr)
      if (!c->wishes().change([=](message::Settings& s) { s.wants_crc = wants_crc != 0; }))
        return fail(EISCONN);
  }
  if (!ensure_entry(fd)) return fail(ENOBUFS);
  const SocketUse use(fd);
  if (!use) return fail(EBADF);
  use->wants_crc.store(wants_crc != 0, std::memory_order_relaxed);
  return 0;
}

void describe_stream(const Socket& socket, const engine::Stream& stream, ddp_status& to) {
  const engine::StreamStatus s = stream.status();
  const bool is_plain = s.state == engine::StreamState::kPlain;
  to.mode = is_plain ? DDP_MODE_OFF : DDP_MODE_STREAM;
  if (!is_plain) {
    to.role = s.role == engine::Role::kInitiator ? DDP_ROLE_INITIATOR : DDP_ROLE_RESPONDER;
    strncpy(to.engine, s.engine, sizeof(to.engine) - 1);
    strncpy(to.memory, s.memory, sizeof(to.memory) - 1);
  }
  if (s.failure != nullptr) strncpy(to.reason, s.failure, sizeof(to.reason) - 1);
  to.is_proved = socket.mode.load(std::memory_order_relaxed) == Mode::kProved;
  to.is_starting = s.state == engine::StreamState::kStarting;
  to.mpa_revision = s.mpa_revision;
  to.has_crc = s.has_crc;
  to.peer_features = s.peer_features;
  to.max_payload = s.max_payload;
  to.bytes_sent = s.bytes_sent;
  to.bytes_received = s.bytes_received;
  to.fpdus_sent = s.fpdus_sent;
  to.fpdus_received = s.fpdus_received;
  to.crcs_checked = s.crcs_checked;
}

int get_status(int fd, void* value, socklen_t* length) {
  if (!is_tcp_socket(fd)) return fail(EOPNOTSUPP);
  ddp_status status{};
  const char* reason = hint_of(fd).reason;
  bool has_stream = false;
  if (is_ours(fd)) {
    SocketUse use(fd);
    if (use && use.phase() == Phase::kConnecting) complete_connect(use, fd, false);
    if (use) {
      const char* kept = use->reason.load(std::memory_order_relaxed);
      if (*kept != '\0') reason = kept;
      strncpy(status.reason, reason, sizeof(status.reason) - 1);
      if (const message::Connection* c = message_connection(use); c != nullptr) {
        if (!describe_messages(*c, status)) return fail(ENOTCONN);
        return copy_out(&status, sizeof(status), value, length);
      }
      has_stream = use.phase() == Phase::kStream;
      if (has_stream) describe_stream(*use, *use->stream.load(std::memory_order_acquire), status);
      if (const message::Connection* c = begun_operations(use); c != nullptr)
        describe_operations(*c, status);
    }
  }
  if (!has_stream) {
    if (!is_connected(fd)) return fail(ENOTCONN);
    if (*reason == '\0') reason = "nothing asked for DDPMODE";
    strncpy(status.reason, reason, sizeof(status.reason) - 1);
  }
  return copy_out(&status, sizeof(status), value, length);
}

// The mode in force, or the one asked for if there is no connection yet.
int get_mode(int fd, void* value, socklen_t* length) {
  if (!is_tcp_socket(fd)) return fail(EOPNOTSUPP);
  int mode = DDP_MODE_OFF;
  if (is_ours(fd)) {
    const SocketUse use(fd);
    if (use && use.phase() == Phase::kMessage) mode = DDP_MODE_MESSAGE;
    const bool is_pending =
        use && (use.phase() == Phase::kIdle || use.phase() == Phase::kListening);
    if (is_pending ? use->wish.load(std::memory_order_relaxed) == Wish::kStream
                   : use && has_live_stream(use.phase()))
      mode = DDP_MODE_STREAM;
  }
  return copy_out(&mode, sizeof(mode), value, length);
}

int get_engine(int fd, void* value, socklen_t* length) {
  if (!is_tcp_socket(fd)) return fail(EOPNOTSUPP);
  char name[kEngineNameBytes] = {};
  if (is_ours(fd)) {
    const SocketUse use(fd);
    const message::Connection* c = use ? message_connection(use) : nullptr;
    if (c != nullptr && c->is_begun()) strncpy(name, c->status().engine, sizeof(name) - 1);
    if (use && has_live_stream(use.phase()))
      strncpy(name, use->stream.load(std::memory_order_acquire)->status().engine, sizeof(name) - 1);
  }
  return copy_out(name, sizeof(name), value, length);
}

int get_crc(int fd, void* value, socklen_t* length) {
  if (!is_tcp_socket(fd)) return fail(EOPNOTSUPP);
  int wants_crc = 1;
  if (is_ours(fd)) {
    const SocketUse use(fd);
    if (use) wants_crc = use->wants_crc.load(std::memory_order_relaxed) ? 1 : 0;
  }
  return copy_out(&wants_crc, sizeof(wants_crc), value, length);
}

}  // namespace

int get_ddp_option(int fd, int name, void* value, socklen_t* length) {
  if (!is_open(fd)) return fail(EBADF);
  if (value == nullptr || length == nullptr) return fail(EFAULT);
  switch (name) {
    case DDP_MODE:
      return get_mode(fd, value, length);
    case DDP_ENGINE:
      return get_engine(fd, value, length);
    case DDP_STATUS:
      return get_status(fd, value, length);
    case DDP_CRC:
      return get_crc(fd, value, length);
    default:
      return get_message_option(fd, name, value, length);
  }
}

int set_ddp_option(int fd, int name, const void* value, socklen_t length) {
  if (!is_open(fd)) return fail(EBADF);
  if (value == nullptr) return fail(EFAULT);
  switch (name) {
    case DDP_MODE:
      return set_mode(fd, value, length);
    case DDP_ENGINE:
      return set_engine(fd, value, length);
    case DDP_CRC:
      return set_crc(fd, value, length);
    default:
      return set_message_option(fd, name, value, length);
  }
}

}  // namespace ddpsock::shim
