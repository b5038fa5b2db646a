// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where sockets come from: socket, listen, accept, connect; and shutdown.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/wake.h"
#include "shim/calls.h"
#include "shim/calls/listeners.h"
#include "shim/connection.h"
#include "shim/libc_edge.h"
#include "shim/log.h"
#include "shim/message_socket.h"
#include "shim/program_memory.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

constexpr const char kNoMemory[] = "this process has no memory for DDPMODE";

bool is_inet(const sockaddr* address, socklen_t length) {
  return length >= sizeof(sockaddr_in) && is_readable(address, length) &&
         (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

bool is_nonblocking(int fd) {
  return (real.fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

// connect() may then return at once, and the first write carries the SYN: too late for any verdict.
bool has_fastopen_connect(int fd) {
  return int_option(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT) != 0;
}

engine::Peer peer_of(Mode mode) {
  return mode == Mode::kProved     ? engine::Peer::kProved
         : mode == Mode::kRequired ? engine::Peer::kRequired
                                   : engine::Peer::kUnknown;
}

void obey(Socket& socket, const Verdict& verdict) {
  socket.mode.store(verdict.mode, std::memory_order_relaxed);
  socket.reason.store(verdict.reason, std::memory_order_relaxed);
  socket.is_required.store(verdict.is_required, std::memory_order_relaxed);
  socket.inquiry = verdict.inquiry;
  if (!verdict.wants_crc) socket.wants_crc.store(false, std::memory_order_relaxed);
}

int connect_plain(int fd, const sockaddr* to, socklen_t length, const char* reason) {
  set_hint(fd, Origin::kConnected, reason);
  const int result = real.connect(fd, to, length);
  if (result == 0 || errno == EINPROGRESS) report_plain("connect", fd, reason);
  return result;
}

// The stream of a dissolved connection goes with the calls of other threads that are at work on it,
// which have something to tell by now. False: one is still there.
bool is_former_stream_gone(SocketUse& use, int fd) {
  const Time give_up = base::now() + engine::Stream::kMostCallTime;
  while (!use->references.is_only_call()) {
    if (base::now() > give_up) return false;
    sched_yield();
  }
  drop_dead_stream(*use, fd);
  return true;
}

// connect() called again on a connection under way, as hiredis does, or on one that stands; or to
// dissolve it (AF_UNSPEC), after which the socket is as new.
int connect_again(SocketUse& use, int fd, const sockaddr* to, socklen_t length) {
  const bool is_disconnect = is_readable(to, length) && to->sa_family == AF_UNSPEC;
  if (is_disconnect && has_live_stream(use.phase()))
    use->stream.load(std::memory_order_acquire)->note_linger(true);  // what follows is a reset
  const int result = real.connect(fd, to, length);
  if (is_disconnect && result == 0 && use.phase() != Phase::kListening) {
    give_back_low_water(*use, fd);
    use->inquiry = {};
    use->phase.store(Phase::kIdle, std::memory_order_release);
    is_former_stream_gone(use, fd);
    return result;
  }
  if (!has_live_stream(use.phase()) || use.phase() == Phase::kStream) return result;
  if (result != 0 && errno != EISCONN) return result;
  const int error = complete_connect(use, fd, result == 0 && !use->is_nonblocking.load());
  return error == 0 ? result : fail(error);
}

int connect_in_ddp_mode(SocketUse& use, int fd, const sockaddr* to, socklen_t length,
                        const Verdict& verdict) {
  const int result = real.connect(fd, to, length);
  const int connect_errno = errno;
  const bool is_closed = socket_at(fd) != &*use;  // by another thread meanwhile
  if (result != 0 && connect_errno != EINPROGRESS && connect_errno != EINTR) {
    // Not where it is connected after all, or another thread or process is at it.
    if (!is_closed && tcp_state(fd) == Tcp::kFailed) give_up_connecting(fd);
    errno = connect_errno;
    return result;
  }
  if (is_closed) return result;
  const auto ends = result == 0 ? ends_of(fd) : std::nullopt;
  if (result == 0 && !ends && has_fastopen_connect(fd)) {
    give_up_connecting(fd);
    make_plain(*use, fd, "TCP_FASTOPEN_CONNECT carries data before a verdict");
    return 0;
  }
  // One that must not wait is never established so soon.
  use->is_nonblocking.store(result != 0 && is_nonblocking(fd), std::memory_order_relaxed);
  obey(*use, verdict);
  use->inquiry.ends = ends;
  if (!open_stream(*use, fd, engine::Role::kInitiator, peer_of(verdict.mode), Phase::kConnecting)) {
    // The peer may have been told that this connection is DDP: it must not see plain bytes.
    make_plain(*use, fd, "the engine has no room");
    real.shutdown(fd, SHUT_RDWR);
    return fail(ENOBUFS);
  }
  if (result != 0) return fail(connect_errno);
  const int error = complete_connect(use, fd, !use->is_nonblocking.load(), Tcp::kEstablished);
  return error == 0 ? 0 : fail(error);
}

// REQUIRES: not connected, not listening.
int connect_by_policy(int fd, const sockaddr* to, socklen_t length, Wish wish) {
  if (wish == Wish::kOff) return connect_plain(fd, to, length, "the program asked for plain TCP");
  const Verdict verdict = before_connect(fd, to, length, wish);
  if (verdict.mode == Mode::kPlain && verdict.is_required) {
    set_hint(fd, Origin::kUnknown, verdict.reason);
    log_connection("connect", fd, "refused", "", verdict.reason);
    return fail(EPROTO);
  }
  if (verdict.mode != Mode::kProved && verdict.mode != Mode::kRequired)
    return connect_plain(fd, to, length, verdict.reason);
  const auto has_no_former_stream = [=] {
    SocketUse use(fd);
    return !use || is_former_stream_gone(use, fd);
  };
  const bool has_room = engine::user_stream_engine().is_available() &&
                        (is_ours(fd) || enter_fd(fd) != nullptr) && has_no_former_stream();
  if (!has_room) {
    give_up_connecting(fd);
    if (verdict.is_required) return fail(ENOBUFS);
    return connect_plain(fd, to, length, kNoMemory);
  }
  SocketUse use(fd);
  return use ? connect_in_ddp_mode(use, fd, to, length, verdict) : fail(EBADF);
}

// DDPMODE for a socket that accept() has just returned. False: it had to be given up.
bool accept_in_ddp_mode(int fd, bool is_nonblocking, const Verdict& verdict, EngineChoice engine) {
  Socket* socket = enter_fd(fd);
  if (socket == nullptr) return false;
  socket->is_nonblocking.store(is_nonblocking, std::memory_order_relaxed);
  obey(*socket, verdict);
  socket->engine.store(engine, std::memory_order_relaxed);
  if (!open_stream(*socket, fd, engine::Role::kResponder, peer_of(verdict.mode), Phase::kStream)) {
    drop_fd(fd);
    return false;
  }
  const char* mode = verdict.mode == Mode::kUndecided ? "undecided" : "stream";
  log_connection("accept", fd, mode, engine_asked_for(*socket), verdict.reason);
  return true;
}

// False: it had to be given up.
bool accept_in_message_mode(message::Connection& listener, int fd, EngineChoice engine) {
  set_hint(fd, Origin::kAccepted, "");
  Socket* socket = enter_fd(fd);
  if (socket == nullptr) return false;
  socket->engine.store(engine, std::memory_order_relaxed);
  if (enter_accepted(listener, *socket, fd)) return true;
  drop_fd(fd);
  return false;
}

// `use` is of the socket that accepted; `listener` a number of it, -1 if it has none any more.
int accepted_by_policy(const SocketUse& use, int listener, int fd, bool is_nonblocking) {
  const int saved_errno = errno;
  Wish wish = Wish::kNone;
  bool is_known_listener = false;
  bool wants_crc = true;
  EngineChoice engine = EngineChoice::kDefault;
  if (use) {
    engine = use->engine.load(std::memory_order_relaxed);
    if (message::Connection* c = message_connection(use); c != nullptr) {
      if (listener >= 0 && accept_in_message_mode(*c, fd, engine)) return fd;
      real.close(fd);
      return fail(ECONNABORTED);
    }
    wants_crc = use->wants_crc.load(std::memory_order_relaxed);
    wish = use->wish.load(std::memory_order_relaxed);
    is_known_listener = use.phase() == Phase::kListening;
  }
  if (wish == Wish::kOff || (!is_known_listener && !is_tcp_socket(fd))) return fd;
  const uint64_t netns = is_known_listener ? use->inquiry.key.netns : 0;
  Verdict verdict = after_accept(listener, fd, wish, netns);
  verdict.wants_crc = verdict.wants_crc && wants_crc;
  if (verdict.mode == Mode::kPlain && verdict.is_required) {
    real.close(fd);
    return fail(ECONNABORTED);
  }
  if (verdict.mode == Mode::kPlain) {
    set_hint(fd, Origin::kAccepted, verdict.reason);
    report_plain("accept", fd, verdict.reason);
  } else if (!accept_in_ddp_mode(fd, is_nonblocking, verdict, engine)) {
    // Nobody has told the client of DDPMODE.
    if (verdict.mode == Mode::kUndecided && !verdict.is_required) {
      set_hint(fd, Origin::kAccepted, kNoMemory);
      report_plain("accept", fd, kNoMemory);
      errno = saved_errno;
      return fd;
    }
    real.close(fd);
    // The peer counts on DDPMODE, the next ones need not. A program that hears that there is no
    // room waits before it.
    const bool has_room = engine::user_stream_engine().is_available();
    if (!has_room && listener >= 0 && may_choose_nothing()) forget_listener(listener);
    return fail(has_room ? ECONNABORTED : ENFILE);
  }
  errno = saved_errno;
  return fd;
}

// May the policy have something to say about what `listener` accepts?
bool is_of_interest(const SocketUse& use, int listener) {
  return use || (may_choose() && is_listening_tcp(listener));
}

// One that came by exec, by SCM_RIGHTS or from a service manager becomes known when accept has
// returned: a thread that is cancelled in it has accepted nothing, and somebody else may.
void know_listener(int listener) {
  const Socket* socket = socket_at(listener);
  if (socket == nullptr || socket->phase.load(std::memory_order_relaxed) == Phase::kIdle)
    enter_listener(listener);
}

// `use` was taken before the kernel's accept: the number may be another listener's since.
int accepted(const SocketUse& use, int listener, int fd, bool is_nonblocking, bool is_of_interest) {
  if (use) listener = number_of(*use, listener);
  if (is_of_interest && listener >= 0) know_listener(listener);
  if (fd < 0) return fd;
  set_origin(fd, Origin::kAccepted);
  drop_stale_fd(fd);
  if (!is_of_interest) return fd;
  if (use) return accepted_by_policy(use, listener, fd, is_nonblocking);
  return accepted_by_policy(SocketUse(listener), listener, fd, is_nonblocking);
}

// Then it is made sure of when a program begins to listen; else the first connection takes it, in
// the process that accepts.
bool is_memory_limited() {
  for (const auto what : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit;
    if (getrlimit(what, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return true;
  }
  return false;
}

// 0: the kernel does not tell (before Linux 5.14).
uint64_t network_namespace(int fd) {
  constexpr int kSoNetnsCookie = 71;
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return real.getsockopt(fd, SOL_SOCKET, kSoNetnsCookie, &cookie, &length) == 0 ? cookie : 0;
}

enum class Listening : uint8_t {
  kNone,   // it is none of ours, or one already
  kKnown,  // to the policy
  kUnnamed,
};

// Before the kernel makes the listener visible, so that every client finds it registered; a port
// that the kernel is yet to choose nobody can know.
Listening begin_listening(int fd) {
  Wish wish = Wish::kNone;
  if (const SocketUse use(fd); use) {
    if (use.phase() != Phase::kIdle) return Listening::kNone;
    wish = use->wish.load(std::memory_order_relaxed);
  } else if (!is_tcp_socket(fd)) {
    return Listening::kNone;
  }
  // Clients that hear of it count on memory for them.
  if (wish == Wish::kNone && may_choose_nothing() && is_memory_limited() &&
      !engine::user_stream_engine().is_available())
    return Listening::kNone;
  if (wish == Wish::kOff || (!is_ours(fd) && enter_fd(fd) == nullptr)) return Listening::kNone;
  const SocketUse use(fd);
  if (!use) return Listening::kNone;
  use->inquiry.key.netns = network_namespace(fd);
  use->phase.store(Phase::kListening, std::memory_order_release);
  return register_listener(fd, wish, Opened::kHere) ? Listening::kKnown : Listening::kUnnamed;
}

void end_listening(int fd) {
  const SocketUse use(fd);
  if (!use) return;
  use->phase.store(Phase::kIdle, std::memory_order_release);
  forget_listener(fd);
}

}  // namespace

int own_socket(int domain, int type, int protocol) {
  const int fd = real.socket(domain, type, protocol);
  set_origin(fd, Origin::kUnknown);
  drop_stale_fd(fd);
  return fd;
}

int own_socketpair(int domain, int type, int protocol, int* pair) {
  const int result = real.socketpair(domain, type, protocol, pair);
  if (result == 0 && is_any_ours()) {
    drop_stale_fd(pair[0]);
    drop_stale_fd(pair[1]);
  }
  return result;
}

int own_listen(int fd, int backlog) {
  if (!is_ours(fd) && !may_choose()) return real.listen(fd, backlog);
  const int saved_errno = errno;
  look_for_rings();
  if (const char* why = is_tcp_socket(fd) ? why_not_to_listen(fd, Wish::kNone) : nullptr;
      why != nullptr && !is_ours(fd)) {
    log_connection("listen", fd, "refused", "", why);
    return fail(EPROTO);
  }
  const Listening begun = begin_listening(fd);
  errno = saved_errno;
  const int result = real.listen(fd, backlog);
  const int listen_errno = errno;
  if (result != 0 && begun != Listening::kNone) end_listening(fd);
  if (const SocketUse use(fd); result == 0 && use) {
    if (message_connection(use) != nullptr) listen_for_messages(*use, fd);
    if (begun == Listening::kKnown) note_listening(fd);
    if (begun == Listening::kUnnamed)
      register_listener(fd, use->wish.load(std::memory_order_relaxed), Opened::kHere);
  }
  errno = listen_errno;
  return result;
}

int own_accept(int fd, sockaddr* address, socklen_t* length) {
  const SocketUse use(fd);
  const bool is_interesting = is_of_interest(use, fd);
  const int result = base::woken(real.accept(fd, address, length), is_any_ours());
  return accepted(use, fd, result, false, is_interesting);
}

int own_accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  const SocketUse use(fd);
  const bool is_interesting = is_of_interest(use, fd);
  const int result = base::woken(real.accept4(fd, address, length, flags), is_any_ours());
  return accepted(use, fd, result, (flags & SOCK_NONBLOCK) != 0, is_interesting);
}

int own_connect(int fd, const sockaddr* to, socklen_t length) {
  set_origin(fd, Origin::kConnected);
  if (!is_ours(fd)) {
    if (!is_policy_active() || !is_inet(to, length) || !may_choose() || !is_tcp_socket(fd))
      return real.connect(fd, to, length);
    return connect_by_policy(fd, to, length, Wish::kNone);
  }
  Wish wish = Wish::kNone;
  {
    SocketUse use(fd);
    if (message::Connection* c = use ? message_connection(use) : nullptr; c != nullptr)
      return connect_message(*use, *c, fd, to, length);
    if (use && use.phase() != Phase::kIdle) return connect_again(use, fd, to, length);
    if (use) wish = use->wish.load(std::memory_order_relaxed);
  }
  if (!is_inet(to, length)) return real.connect(fd, to, length);
  return connect_by_policy(fd, to, length, wish);
}

int chosen_shutdown(int fd, int how) {
  if (SocketUse use(fd); use) {
    if (message::Connection* c = message_connection(use); c != nullptr)
      return shut_message(*c, how);
    if (use.phase() == Phase::kConnecting && is_true_entry(use, fd)) {
      complete_connect(use, fd, false);
      if (use.phase() == Phase::kConnecting) return shut_connecting(use, fd, how);
    }
  }
  return static_cast<int>(serve(
      fd, 0, Direction::kSend, [=](engine::Stream& stream) { return stream.shutdown(fd, how); },
      [=] { return ssize_t{real.shutdown(fd, how)}; }));
}

}  // namespace ddpsock::shim
