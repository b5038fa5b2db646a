// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// recvmsg, sendmsg and the calls that batch them. TCP has no addresses and, with what options.cpp
// lets through, no control messages: the names come back empty and what was to be sent along is
// ignored, as the kernel does. A UNIX socket could carry the descriptor of a stream to a process
// that would take the wire's bytes for the stream's: that is refused.
#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

#include <cstring>

#include "base/clock.h"
#include "shim/calls.h"
#include "shim/fd_table.h"
#include "shim/flags.h"
#include "shim/log.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

std::span<const iovec> parts_of(const msghdr& message) {
  return {message.msg_iov, message.msg_iovlen};
}

engine::Io receive_message(engine::Stream& stream, int fd, msghdr& message, int flags) {
  if (message.msg_iovlen > IOV_MAX) return engine::Io::fail(EMSGSIZE);
  const Flags wanted = receive_flags(flags);
  if (wanted.error != 0) return engine::Io::fail(wanted.error);
  const engine::Io io = stream.recv(fd, parts_of(message), wanted.for_engine);
  if (io.is_ok()) {
    if (message.msg_name != nullptr) message.msg_namelen = 0;
    message.msg_controllen = 0;
    message.msg_flags = flags & MSG_CMSG_CLOEXEC;
  }
  return io;
}

engine::Io send_message(engine::Stream& stream, int fd, const msghdr& message, int flags) {
  if (message.msg_iovlen > IOV_MAX) return engine::Io::fail(EMSGSIZE);
  const Flags wanted = send_flags(fd, flags);
  return wanted.error != 0 ? engine::Io::fail(wanted.error)
                           : stream.send(fd, parts_of(message), wanted.for_engine);
}

bool is_in_ddp_mode(int fd) {
  if (!is_ours(fd)) return false;
  const SocketUse use(fd);
  if (!use) return false;
  if (use->message.load(std::memory_order_acquire) != nullptr) return true;
  if (!has_live_stream(use.phase())) return false;
  const auto state = use->stream.load(std::memory_order_acquire)->status().state;
  // While nothing has been said the connection can still be plain, and is where it goes.
  const bool is_undecided = use->mode.load(std::memory_order_relaxed) == Mode::kUndecided;
  return state == engine::StreamState::kOpen ||
         (state == engine::StreamState::kStarting && !is_undecided);
}

bool passes_stream(const msghdr& message) {
  auto* const m = const_cast<msghdr*>(&message);
  for (cmsghdr* c = CMSG_FIRSTHDR(m); c != nullptr; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
      continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
      if (!is_in_ddp_mode(fd)) continue;
      log_connection("SCM_RIGHTS", fd, "stream", "",
                     "refused: the receiver would not know of DDPMODE; rules can say off");
      return true;
    }
  }
  return false;
}

// When recvmmsg gives up; kNever without a timeout.
Time deadline_of(const timespec* timeout) {
  if (timeout == nullptr) return kNever;
  return base::now() + Duration{timeout->tv_sec * 1'000'000'000 + timeout->tv_nsec};
}

}  // namespace

ssize_t chosen_recvmsg(int fd, msghdr* message, int flags) {
  const auto on_libc = [=] { return real.recvmsg(fd, message, flags); };
  if (message == nullptr || (flags & MSG_ERRQUEUE) != 0) return on_libc();
  return serve(
      fd, flags,
      [=](engine::Stream& stream) { return receive_message(stream, fd, *message, flags); },
      on_libc);
}

namespace {

ssize_t chosen_sendmsg(int fd, const msghdr* message, int flags) {
  const auto on_libc = [=] { return real.sendmsg(fd, message, flags); };
  if (message == nullptr) return on_libc();
  return serve(
      fd, flags, [=](engine::Stream& stream) { return send_message(stream, fd, *message, flags); },
      on_libc);
}

}  // namespace

int chosen_recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const Time deadline = deadline_of(timeout);
  unsigned done = 0;
  // The kernel looks at the time between messages only, and reports an error only if it is the
  // first.
  while (done < count) {
    const ssize_t n = chosen_recvmsg(fd, &messages[done].msg_hdr, flags & ~MSG_WAITFORONE);
    if (n < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done++].msg_len = static_cast<unsigned>(n);
    if ((flags & MSG_WAITFORONE) != 0) flags |= MSG_DONTWAIT;
    if (deadline != kNever && base::now() >= deadline) break;
  }
  return static_cast<int>(done);
}

ssize_t own_sendmsg(int fd, const msghdr* message, int flags) {
  if (is_ours(fd)) return chosen_sendmsg(fd, message, flags);
  if (is_any_ours() && message != nullptr && message->msg_controllen > 0 &&
      passes_stream(*message)) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return real.sendmsg(fd, message, flags);
}

// The kernel reports an error only if it is of the first message.
int own_sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  if (!is_any_ours() || messages == nullptr) return real.sendmmsg(fd, messages, count, flags);
  unsigned done = 0;
  if (!is_ours(fd)) {
    while (done < count && !passes_stream(messages[done].msg_hdr)) ++done;
    if (done > 0 || count == 0) return real.sendmmsg(fd, messages, done, flags);
    errno = EOPNOTSUPP;
    return -1;
  }
  while (done < count && done < IOV_MAX) {
    const ssize_t n = chosen_sendmsg(fd, &messages[done].msg_hdr, flags);
    if (n < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done++].msg_len = static_cast<unsigned>(n);
  }
  return static_cast<int>(done);
}

}  // namespace ddpsock::shim
