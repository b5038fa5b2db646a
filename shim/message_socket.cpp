// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/message_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <utility>

#include "base/keep_errno.h"
#include "shim/brief_use.h"
#include "shim/connection.h"
#include "shim/libc_edge.h"
#include "shim/log.h"
#include "shim/policy/message_proof.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

constexpr char kAsked[] = "the program asked for messages";

template <typename T>
int error_of(const Result<T>& result) {
  return result ? 0 : to_int(result.error());
}

bool is_nonblocking(int fd) {
  return (real.fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

// What a program without our state would read from it is the wire's bytes.
void close_on_exec(int fd) {
  real.fcntl(fd, F_SETFD, FD_CLOEXEC);
}

using Memory = message::Connection::Memory;
using engine::shm::MessageMemory;

const char* why_not(Errno error) {
  switch (to_int(error)) {
    case EACCES:
    case EPERM:
    case ENOENT:
      return "the peer is another user's, hides, or is in another pid namespace";
    case EPROTO:
      return "the memory that the peer offered is not what it said";
    default:
      return "the kernel has no memory or descriptor for it";
  }
}

constexpr char kNotWanted[] = "shared memory is not wanted";
constexpr char kShared[] = "shared memory";

// For a connection about to be made; published before.
Memory offer_memory(Socket& socket, const message::Connection& c, int fd, const sockaddr* to,
                    socklen_t length) {
  if (!may_share_memory(socket) || c.wishes().settings().wants_markers)
    return {nullptr, kNotWanted};
  const auto name = find_message_listener(fd, to, length);
  if (!name) return {nullptr, "no listener on this host is known to be in message mode"};
  auto made = MessageMemory::make(*name);
  if (!made) return {nullptr, why_not(made.error())};
  socket.has_offered.store(true, std::memory_order_relaxed);
  if (!offer_message_memory(fd, (*made)->descriptor())) return {nullptr, "there is no registry"};
  return {std::move(*made), kShared};
}

Memory join_memory(const Socket& socket, const message::Connection& listener, int fd) {
  if (!may_share_memory(socket) || listener.wishes().settings().wants_markers)
    return {nullptr, kNotWanted};
  const auto offer = take_message_offer(fd);
  if (!offer) return {nullptr, "the peer has not offered shared memory"};
  auto joined = MessageMemory::join(offer->pid, offer->memory_fd, offer->socket);
  if (!joined) return {nullptr, why_not(joined.error())};
  return {std::move(*joined), kShared};
}

void enter(Socket& socket, message::Handle& handle) {
  allow_brief_uses();
  socket.message.store(&handle, std::memory_order_release);
  socket.reason.store(kAsked, std::memory_order_relaxed);
  socket.phase.store(Phase::kMessage, std::memory_order_release);
}

}  // namespace

message::Handle* message_handle(const SocketUse& use) {
  if (use.phase() != Phase::kMessage) return nullptr;
  message::Handle* handle = use->message.load(std::memory_order_acquire);
  return handle != nullptr && !handle->is_foreign() ? handle : nullptr;
}

message::Connection* message_connection(const SocketUse& use) {
  message::Handle* handle = message_handle(use);
  return handle != nullptr ? handle->connection() : nullptr;
}

Result<message::Connection*> operations_of_stream(SocketUse& use, int fd) {
  if (!has_live_stream(use.phase())) return fail_errno(EOPNOTSUPP);
  if (choose_server(use, fd, MSG_DONTWAIT, Direction::kSend) != Server::kStream)
    return fail_errno(ENOTCONN);
  engine::Stream* stream = use->stream.load(std::memory_order_acquire);
  if (stream == nullptr) return fail_errno(EOPNOTSUPP);
  message::Handle* handle = use->message.load(std::memory_order_acquire);
  if (handle == nullptr) {
    const auto made = message::Connection::make({});
    if (!made) return made;
    if (use->message.compare_exchange_strong(handle, *made)) {
      handle = *made;
    } else {
      (*made)->destroy();
    }
  }
  if (handle->is_foreign()) return fail_errno(EOPNOTSUPP);
  message::Connection* c = handle->connection();
  if (c->is_begun()) return c;
  const auto begun = c->begin_on_stream(fd, stream->one_sided_way());
  if (!begun) return fail(begun.error());
  return c;
}

const message::Connection* begun_operations(const SocketUse& use) {
  if (use.phase() != Phase::kStream) return nullptr;
  message::Handle* handle = use->message.load(std::memory_order_acquire);
  if (handle == nullptr || handle->is_foreign()) return nullptr;
  return handle->connection()->is_begun() ? handle->connection() : nullptr;
}

int wish_messages(SocketUse& use, int fd) {
  if (use.phase() == Phase::kMessage) return 0;
  if (message::Handle* before = use->message.load(std::memory_order_acquire); before != nullptr) {
    if (before->is_foreign() || before->connection()->is_begun()) return EALREADY;
    use->phase.store(Phase::kMessage, std::memory_order_release);
    return 0;
  }
  const auto made =
      message::Connection::make({.wants_crc = use->wants_crc.load(std::memory_order_relaxed)});
  if (!made) return error_of(made);
  close_on_exec(fd);
  enter(*use, **made);
  return 0;
}

int upgrade_to_messages(SocketUse& use, int fd, engine::Role role) {
  if (const int error = wish_messages(use, fd); error != 0) return error;
  message::Connection* c = message_connection(use);
  if (c == nullptr) return EOPNOTSUPP;
  const int error =
      error_of(c->begin(fd, role, true, {nullptr, "the connection was not made in message mode"}));
  if (error == 0) log_connection("upgrade", fd, "message", "user", kAsked);
  return error;
}

int leave_message_mode(const SocketUse& use, int fd) {
  message::Connection* c = message_connection(use);
  if (c == nullptr) return EOPNOTSUPP;
  if (!c->is_begun()) {
    forget_message_listener(fd);
    use->phase.store(Phase::kIdle, std::memory_order_release);
    return 0;
  }
  if (!c->is_untouched()) return EISCONN;
  c->close();
  use->reason.store("the program took the connection back as plain TCP", std::memory_order_relaxed);
  use->phase.store(Phase::kPlain, std::memory_order_release);
  return 0;
}

void listen_for_messages(const Socket& socket, int fd) {
  if (may_share_memory(socket)) register_message_listener(fd);
}

bool enter_accepted(const message::Connection& listener, Socket& socket, int fd) {
  const base::KeepErrno keep;
  const auto made = listener.make_accepted();
  if (!made) return false;
  close_on_exec(fd);
  enter(socket, **made);
  const bool is_begun =
      (*made)
          ->begin(fd, engine::Role::kResponder, true, join_memory(socket, listener, fd))
          .has_value();
  if (is_begun) log_connection("accept", fd, "message", engine_asked_for(socket), kAsked);
  return is_begun;
}

int connect_message(Socket& socket, message::Connection& c, int fd, const sockaddr* to,
                    socklen_t length) {
  if (c.is_begun()) return real.connect(fd, to, length);
  Memory memory = offer_memory(socket, c, fd, to, length);
  const int result = real.connect(fd, to, length);
  const int connect_errno = errno;
  const bool is_under_way = result != 0 && (errno == EINPROGRESS || errno == EINTR);
  if (result != 0 && !is_under_way) {
    withdraw_offer(socket, fd);
    errno = connect_errno;
    return result;
  }
  // Asked now: a second call to the peer lends the socket the other kind for a moment.
  const bool is_waiting = !is_nonblocking(fd);
  const auto begun = c.begin(fd, engine::Role::kInitiator, false, std::move(memory), is_under_way);
  if (!begun) {
    real.shutdown(fd, SHUT_RDWR);
    return fail(error_of(begun));
  }
  log_connection("connect", fd, "message", engine_asked_for(socket), kAsked);
  if (is_under_way) return fail(connect_errno);
  if (!is_waiting) return 0;
  const int error = error_of(c.establish(-1));
  return error == 0 ? 0 : fail(error);
}

void withdraw_offer(Socket& socket, int fd) {
  if (socket.has_offered.exchange(false, std::memory_order_relaxed)) forget_message_offer(fd);
}

int shut_message(message::Connection& c, int how) {
  if (how == SHUT_RD) return fail(EOPNOTSUPP);
  if (how != SHUT_WR && how != SHUT_RDWR) return fail(EINVAL);
  const int error = error_of(c.shut(how == SHUT_RDWR));
  return error == 0 ? 0 : fail(error);
}

int message_socket_error(const SocketUse& use) {
  message::Connection* c = message_connection(use);
  return c != nullptr && c->is_begun() ? c->take_socket_error() : 0;
}

void describe_operations(const message::Connection& c, ddp_status& to) {
  const message::ConnectionStatus s = c.status();
  strncpy(to.progress, s.progress, sizeof(to.progress) - 1);
  to.ird = s.ird;
  to.ord = s.ord;
}

bool describe_messages(const message::Connection& c, ddp_status& to) {
  const message::ConnectionStatus s = c.status();
  if (!s.is_begun) return false;
  to.mode = DDP_MODE_MESSAGE;
  to.role = s.role == engine::Role::kInitiator ? DDP_ROLE_INITIATOR : DDP_ROLE_RESPONDER;
  strncpy(to.engine, s.engine, sizeof(to.engine) - 1);
  strncpy(to.memory, s.memory, sizeof(to.memory) - 1);
  to.is_proved = strcmp(s.engine, "shm") == 0;
  if (*s.reason != '\0') strncpy(to.reason, s.reason, sizeof(to.reason) - 1);
  to.is_starting = s.is_starting;
  describe_operations(c, to);
  const engine::QpCounters& counters = c.counters();
  to.max_payload = counters.max_payload.load(std::memory_order_relaxed);
  to.bytes_sent = counters.bytes_sent.value();
  to.bytes_received = counters.bytes_received.value();
  to.fpdus_sent = counters.segments_sent.value();
  to.fpdus_received = counters.segments_received.value();
  to.crcs_checked = counters.crcs_checked.value();
  if (!s.is_up) return true;
  to.mpa_revision = s.agreement.revision;
  to.has_crc = s.agreement.has_crc;
  to.has_markers = (s.agreement.send_markers ? 1u : 0u) | (s.agreement.receive_markers ? 2u : 0u);
  return true;
}

}  // namespace ddpsock::shim
