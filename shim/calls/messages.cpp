// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// recvmsg, sendmsg and the calls that batch them. TCP has no addresses and, with what options.cpp
// lets through, one control message (TCP_INQ): the names come back empty and what was to be sent
// along is ignored, as the kernel does. A UNIX socket could carry the descriptor of a stream to a
// process that would take the wire's bytes for the stream's: the connection returns to plain TCP
// first. One that cannot is refused (EOPNOTSUPP), unless it was accepted and nothing was sent on
// it: then it is reset and passed on.
#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "shim/calls.h"
#include "shim/calls/flags.h"
#include "shim/calls/handing_out.h"
#include "shim/calls/leaving.h"
#include "shim/calls/listeners.h"
#include "shim/calls/passed_fds.h"
#include "shim/fd_table.h"
#include "shim/libc_edge.h"
#include "shim/pollers/readiness.h"
#include "shim/pollers/watched_sets.h"
#include "shim/program_memory.h"
#include "shim/real.h"
#include "shim/stream_call.h"
#include "shim/tcp_counts.h"

namespace ddpsock::shim {
namespace {

std::span<const iovec> parts_of(const msghdr& message) {
  return {message.msg_iov, message.msg_iovlen};
}

// What the kernel says of a message before it looks at anything else; 0: nothing.
int error_of(const msghdr& message) {
  if (message.msg_iovlen > IOV_MAX) return EMSGSIZE;
  const bool is_invalid = (message.msg_name != nullptr && is_negative(message.msg_namelen)) ||
                          has_negative(parts_of(message));
  return is_invalid ? EINVAL : 0;
}

engine::Io receive_message(const SocketUse& use, engine::Stream& stream, int fd, msghdr& message,
                           int flags) {
  if (const int error = error_of(message); error != 0) return engine::Io::fail(error);
  const Flags wanted = receive_flags(flags);
  if (wanted.error != 0) return refuse_receive(stream, fd, wanted);
  const engine::Io io = receive_into(stream, fd, parts_of(message), wanted.for_engine);
  if (io.is_ok()) {
    if (message.msg_name != nullptr) message.msg_namelen = 0;
    message.msg_flags = flags & MSG_CMSG_CLOEXEC;
    const size_t room = std::exchange(message.msg_controllen, 0);
    tell_queue(use, fd, message, room);
  }
  return io;
}

// What TCP says of control data, which are about the connection and not about the bytes.
int judge_control(engine::Stream& stream, int fd, const msghdr& message) {
  const base::KeepErrno keep;
  const base::Uncancelled whole;
  msghdr nothing{};
  nothing.msg_control = message.msg_control;
  nothing.msg_controllen = message.msg_controllen;
  if (real.sendmsg(fd, &nothing, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
  // The send tells of a broken pipe, with its signal.
  return errno == EPIPE ? 0 : stream.judge_error(errno);
}

engine::Io send_message(engine::Stream& stream, int fd, const msghdr& message, int flags) {
  if (const int error = error_of(message); error != 0) return engine::Io::fail(error);
  if (message.msg_controllen > 0) [[unlikely]] {
    if (!is_sound(message.msg_control, message.msg_controllen)) return engine::Io::fail(EFAULT);
    if (const int e = judge_control(stream, fd, message); e != 0) return engine::Io::fail(e);
  }
  const Flags wanted = send_flags(fd, flags);
  return wanted.error != 0 ? engine::Io::fail(wanted.error)
                           : send_from(stream, fd, parts_of(message), wanted.for_engine);
}

constexpr char kPassed[] = "passed to another process";

bool is_in_ddp_mode(int fd) {
  if (!is_ours(fd)) return false;
  const SocketUse use(fd);
  return use && (use.phase() == Phase::kMessage || has_live_stream(use.phase()));
}

bool passes_any_fd(const msghdr& message) {
  if (!is_sound(message.msg_control, message.msg_controllen)) return false;
  bool does = false;
  visit_passed_fds(message, [&](int) { does = true; });
  return does;
}

// What any other socket, or none, is told to pass on is not passed on.
bool carries_descriptors(int fd) {
  const base::KeepErrno keep;
  return int_option(fd, SOL_SOCKET, SO_DOMAIN) == AF_UNIX;
}

bool passes_stream(const msghdr& message) {
  bool does = false;
  visit_passed_fds(message, [&](int fd) { does |= is_in_ddp_mode(fd); });
  return does;
}

// False: one at least is in DDPMODE still, or was.
template <typename Each>
bool leave_to_pass(Each each) {
  bool is_any_handed_out = false;
  each([&](int fd) { is_any_handed_out |= begin_handing_out(fd); });
  return is_any_handed_out ? hand_out_each(each, kPassed) : leave_ddp_mode_each(each, kPassed);
}

// How many of the messages, from the first on, pass on nothing but what may be passed: connections
// among it are plain TCP then. Also notes the listeners and epoll sets that leave.
unsigned prepare_to_pass(std::span<const mmsghdr> messages, LeavingListeners& listeners) {
  const auto each = [=](auto visit) {
    for (const mmsghdr& m : messages) visit_passed_fds(m.msg_hdr, visit);
  };
  unsigned good = 0;
  if (leave_to_pass(each)) {
    good = static_cast<unsigned>(messages.size());
  } else {
    while (good < messages.size() && !passes_stream(messages[good].msg_hdr)) ++good;
  }
  for (const mmsghdr& m : messages.first(good))
    visit_passed_fds(m.msg_hdr, [&](int fd) {
      share_set(fd);
      listeners.note(fd);
    });
  return good;
}

int refuse() {
  errno = EOPNOTSUPP;
  return -1;
}

// Listeners that are only looked at will arrive once more; but numbers are taken.
[[gnu::noinline]] void received_control(const msghdr& message, int flags) {
  if (is_any_ours())
    visit_passed_fds(message, [](int fd) {
      drop_stale_fd(fd);
      forget_set(fd);
    });
  if ((flags & MSG_PEEK) == 0) enter_received_listeners(message);
}

void received(const msghdr& message, int flags) {
  if (message.msg_controllen != 0) [[unlikely]]
    received_control(message, flags);
}

// Linux writes the time that is left back. False: nobody may write there, which the kernel is asked
// before we do.
bool tell_rest(const PollDeadline& deadline, timespec* timeout) {
  timespec left;
  if (timeout == nullptr || deadline.left(left) == nullptr) return true;
  if (base::kernel_call(SYS_clock_gettime, CLOCK_MONOTONIC, timeout) != 0) return false;
  *timeout = left;
  return true;
}

ssize_t chosen_recvmsg(int fd, msghdr* message, int flags) {
  const auto on_libc = [=] { return real.recvmsg(fd, message, flags); };
  if (!is_sound(message, sizeof *message) || (flags & MSG_ERRQUEUE) != 0) return on_libc();
  leave_to_receive(fd, flags);
  if (SocketUse use(fd); use) {
    const auto done = serve_stream(
        use, fd, flags, Direction::kReceive,
        [&](engine::Stream& stream) { return receive_message(use, stream, fd, *message, flags); });
    if (done) return *done;
  }
  return on_libc();
}

ssize_t chosen_sendmsg(int fd, const msghdr* message, int flags) {
  const auto on_libc = [=] { return real.sendmsg(fd, message, flags); };
  if (!is_sound(message, sizeof *message)) return on_libc();
  leave_for_urgent_data(fd, flags);
  return serve(
      fd, flags, Direction::kSend,
      [=](engine::Stream& stream) { return send_message(stream, fd, *message, flags); }, on_libc);
}

int outliving(const Socket& socket) {
  const engine::Stream* stream = socket.stream.load(std::memory_order_acquire);
  return stream != nullptr ? stream->outliving() : -1;
}

// Like the kernel, holds the socket for all messages: who has its number after one that slept gets
// nothing of the rest, which goes on with what outlives the number. An error is reported only if it
// is the first message's; behind others that were received it is kept for the next call. Nothing:
// the call is libc's. move(use, stream, fd, message) -> Io; is_last(message) once it has been
// moved; move_plain(fd, messages) -> int where the connection has returned to plain TCP behind
// some.
template <typename Move, typename IsLast, typename MovePlain>
std::optional<int> move_each(int fd, int flags, Direction direction, std::span<mmsghdr> messages,
                             Move move, IsLast is_last, MovePlain move_plain) {
  SocketUse use(fd);
  if (!use) return std::nullopt;
  int done = 0;
  for (mmsghdr& m : messages) {
    if (done > 0 && socket_at(fd) != &*use) fd = outliving(*use);
    if (fd < 0) break;
    const auto moved = serve_stream(use, fd, flags, direction, [&](engine::Stream& stream) {
      return move(use, stream, fd, m.msg_hdr);
    });
    if (!moved && done == 0) return std::nullopt;
    if (!moved) {
      const base::KeepErrno keep;
      const bool is_taken = socket_at(fd) != &*use && outliving(*use) != fd;
      if (is_taken || use.phase() != Phase::kPlain) return done;
      return done + std::max(move_plain(fd, messages.subspan(static_cast<size_t>(done))), 0);
    }
    if (*moved < 0 && done > 0 && direction == Direction::kReceive)
      use->stream.load(std::memory_order_acquire)->keep_error(errno);
    if (*moved < 0) return done > 0 ? done : -1;
    m.msg_len = static_cast<unsigned>(*moved);
    ++done;
    if (is_last(m)) break;
  }
  return done;
}

int pending_error(int fd) {
  const base::KeepErrno keep;
  int error = 0;
  socklen_t length = sizeof error;
  return own_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : 0;
}

int chosen_recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const auto on_libc = [=] { return real.recvmmsg(fd, messages, count, flags, timeout); };
  if (!is_sound_array(messages, count) || count == 0 || (flags & MSG_ERRQUEUE) != 0 ||
      !is_timeout(timeout))
    return on_libc();
  leave_to_receive(fd, flags);
  // The kernel looks for an error first, whatever there is to receive.
  if (const int error = pending_error(fd); error != 0) {
    errno = error;
    return -1;
  }
  const PollDeadline deadline = PollDeadline::after(timeout);
  int wanted = flags & ~MSG_WAITFORONE;
  const auto done = move_each(
      fd, flags, Direction::kReceive, {messages, count},
      [&](const SocketUse& use, engine::Stream& stream, int at, msghdr& message) {
        return receive_message(use, stream, at, message, wanted);
      },
      // The kernel looks at the time between messages only.
      [&](const mmsghdr&) {
        if ((flags & MSG_WAITFORONE) != 0) wanted |= MSG_DONTWAIT;
        return deadline.is_over();
      },
      [&](int at, std::span<mmsghdr> rest) {
        timespec time;
        return real.recvmmsg(at, rest.data(), static_cast<unsigned>(rest.size()), wanted,
                             deadline.left(time));
      });
  if (!done) return on_libc();
  if (*done > 0 && !tell_rest(deadline, timeout)) {
    errno = EFAULT;
    return -1;
  }
  return *done;
}

size_t size_of(const msghdr& message) {
  size_t size = 0;
  for (const iovec& part : parts_of(message)) size += part.iov_len;
  return std::min(size, engine::kMostAtOnce);
}

int chosen_sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  const auto on_libc = [=] { return real.sendmmsg(fd, messages, count, flags); };
  if (!is_sound_array(messages, count) || count == 0) return on_libc();
  leave_for_urgent_data(fd, flags);
  const auto done = move_each(
      fd, flags, Direction::kSend, {messages, std::min(count, unsigned{IOV_MAX})},
      [=](const SocketUse&, engine::Stream& stream, int at, const msghdr& message) {
        return send_message(stream, at, message, flags);
      },
      // What followed a message that was sent in part would leave a hole.
      [](const mmsghdr& m) { return m.msg_len < size_of(m.msg_hdr); },
      [=](int at, std::span<mmsghdr> rest) {
        return real.sendmmsg(at, rest.data(), static_cast<unsigned>(rest.size()), flags);
      });
  return done ? *done : on_libc();
}

}  // namespace

ssize_t own_recvmsg(int fd, msghdr* message, int flags) {
  if (is_served(fd)) return chosen_recvmsg(fd, message, flags);
  const ssize_t result = real.recvmsg(fd, message, flags);
  if (result >= 0) received(*message, flags);
  return result;
}

int own_recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  if (is_served(fd)) return chosen_recvmmsg(fd, messages, count, flags, timeout);
  const int result = real.recvmmsg(fd, messages, count, flags, timeout);
  for (int i = 0; i < result; ++i) received(messages[i].msg_hdr, flags);
  return result;
}

ssize_t own_sendmsg(int fd, const msghdr* message, int flags) {
  if (is_served(fd)) return chosen_sendmsg(fd, message, flags);
  if (!is_any_ours() || !is_sound(message, sizeof *message) || !passes_any_fd(*message) ||
      !carries_descriptors(fd))
    return real.sendmsg(fd, message, flags);
  LeavingListeners leaving(Escape::kInFlight);
  const mmsghdr one{.msg_hdr = *message, .msg_len = 0};
  const ssize_t sent =
      prepare_to_pass({&one, 1}, leaving) == 0 ? refuse() : real.sendmsg(fd, message, flags);
  if (sent < 0) leaving.take_back();
  return sent;
}

int own_sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  if (is_served(fd)) return chosen_sendmmsg(fd, messages, count, flags);
  const std::span<const mmsghdr> all(messages, is_sound_array(messages, count) ? count : 0);
  if (!is_any_ours() ||
      !std::ranges::any_of(all, [](const mmsghdr& m) { return passes_any_fd(m.msg_hdr); }) ||
      !carries_descriptors(fd))
    return real.sendmmsg(fd, messages, count, flags);
  LeavingListeners leaving(Escape::kInFlight);
  const unsigned good = prepare_to_pass(all, leaving);
  const int sent = good > 0 ? real.sendmmsg(fd, messages, good, flags) : refuse();
  if (sent < 0) leaving.take_back();
  return sent;
}

}  // namespace ddpsock::shim
