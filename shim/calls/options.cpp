// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// getsockopt and setsockopt: our own level, the options whose meaning is in the stream, those that
// only the kernel can serve, and those that would break the framing. Everything else is true of the
// TCP socket and passes. doc/options.md has them all.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include <optional>

#include "ddpsock/ddpsock.h"
#include "shim/calls.h"
#include "shim/calls/ddp_options.h"
#include "shim/calls/leaving.h"
#include "shim/calls/listeners.h"
#include "shim/connection.h"
#include "shim/libc_edge.h"
#include "shim/message_socket.h"
#include "shim/program_memory.h"
#include "shim/real.h"
#include "shim/stream_call.h"
#include "shim/tcp_counts.h"

namespace ddpsock::shim {
namespace {

// Would change, consume or add bytes below the framing. Refused as by a kernel that lacks them:
// programs then do without.
bool would_break_framing(int level, int name) {
  if (level == SOL_SOCKET) return name == SO_ZEROCOPY;
  if (level != IPPROTO_TCP) return false;
  switch (name) {
    case TCP_ULP:
    case TCP_REPAIR:
    case TCP_REPAIR_QUEUE:
    case TCP_QUEUE_SEQ:
    case TCP_REPAIR_OPTIONS:
    case TCP_ZEROCOPY_RECEIVE:
      return true;
    default:
      return false;
  }
}

// The program's value, if it has the size of one.
std::optional<int> value_of(const void* value, socklen_t length) {
  int number = 0;
  if (length < sizeof number) return std::nullopt;
  memcpy(&number, value, sizeof number);
  return number;
}

// Tells of segments, or works on what the kernel has unread, in ways that programs do not do
// without: what they are asked for on is plain TCP.
bool needs_plain_tcp(int level, int name, const void* value, socklen_t length) {
  if (level != SOL_SOCKET) return false;
  switch (name) {
    case SO_TIMESTAMP:
    case SO_TIMESTAMPNS:
    case SO_TIMESTAMPING:
    case SO_TIMESTAMP_NEW:
    case SO_TIMESTAMPNS_NEW:
    case SO_TIMESTAMPING_NEW:
      return value_of(value, length).value_or(0) != 0;
    case SO_PEEK_OFF:
      return value_of(value, length).value_or(-1) >= 0;
    case SO_ATTACH_FILTER:
    case SO_ATTACH_BPF:
      return true;
    default:
      return false;
  }
}

// Of a socket that has no connection yet, also what a connection would refuse: it is too late then.
bool needs_plain_tcp_later(int level, int name, const void* value, socklen_t length) {
  const bool is_of_kernel =
      (level == SOL_SOCKET && name == SO_ZEROCOPY) || (level == IPPROTO_TCP && name == TCP_REPAIR);
  return is_of_kernel && value_of(value, length).value_or(0) > 0;
}

bool shapes_traffic(int level, int name) {
  return (level == SOL_SOCKET && name == SO_MAX_PACING_RATE) ||
         (level == IPPROTO_TCP && name == TCP_TX_DELAY);
}

bool is_stream(int fd) {
  const SocketUse use(fd);
  return use && (has_live_stream(use.phase()) || use.phase() == Phase::kMessage);
}

// Sees to it that the kernel can do what the program is about to ask of it. False: it could not.
bool make_room_for_kernel(int fd, bool may_leave) {
  Wish wish = Wish::kNone;
  bool is_known_listener = false;
  if (const SocketUse use(fd); use) {
    if (has_live_stream(use.phase()) || use.phase() == Phase::kMessage)
      return may_leave && leave_ddp_mode(fd, "an option that only the kernel serves");
    wish = use->wish.load(std::memory_order_relaxed);
    is_known_listener = use.phase() == Phase::kListening;
  }
  if ((wish == Wish::kNone && !is_policy_active()) || !is_tcp_socket(fd)) return true;
  const bool is_listener = is_known_listener || is_listening_tcp(fd);
  if (!is_listener && tcp_state(fd) != Tcp::kFailed) return true;
  if (!permits_kernel_option(wish)) return false;
  if (is_known_listener) forget_listener(fd);
  return true;
}

// The moment at which a program learns how a non-blocking connect() went.
int get_error(int fd, void* value, socklen_t* length) {
  SocketUse use(fd);
  int error = 0;
  if (use && use.phase() == Phase::kConnecting) error = complete_connect(use, fd, false);
  if (use && use.phase() == Phase::kMessage) error = message_socket_error(use);
  if (error != 0 && error != EAGAIN) return copy_out(error, value, length);
  const int result = real.getsockopt(fd, SOL_SOCKET, SO_ERROR, value, length);
  if (result == 0 && *length == sizeof(error) && use && has_live_stream(use.phase()) &&
      is_true_entry(use, fd)) {
    memcpy(&error, value, sizeof(error));
    error = use->stream.load(std::memory_order_acquire)->judge_error(error);
    memcpy(value, &error, sizeof(error));
  }
  return result;
}

// Whether the program's close is a reset is told to a peer that sees none.
void note_linger(int fd, const void* value, socklen_t length) {
  linger wanted;
  if (length < sizeof(wanted)) return;
  memcpy(&wanted, value, sizeof(wanted));
  const SocketUse use(fd);
  if (use && has_live_stream(use.phase()))
    use->stream.load(std::memory_order_acquire)
        ->note_linger(wanted.l_onoff != 0 && wanted.l_linger == 0);
}

// What the kernel does to the bytes on their way is so for those in memory too: they go on on the
// wire.
void follow_kernel(int fd) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase())) return;
  engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  if (stream.is_behind(fd)) stream.leave_memory(fd);
}

int get_low_water(int fd, void* value, socklen_t* length) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase()))
    return real.getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, value, length);
  // A relative may have set it.
  const engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  return copy_out(stream.receive_low_water(), value, length);
}

int set_low_water(int fd, const void* value, socklen_t length) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase()))
    return real.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, value, length);
  // What it comes to is the kernel's to say; but it counts frames.
  if (real.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, value, length) != 0) return -1;
  const int bytes = int_option(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
  const int one = 1;
  real.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
  use->receive_low_water.store(bytes, std::memory_order_relaxed);
  use->stream.load(std::memory_order_acquire)->set_receive_low_water(bytes);
  return 0;
}

int get_tcp_info(int fd, void* value, socklen_t* length) {
  const int result = real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, value, length);
  const SocketUse use(fd);
  if (result == 0 && use && use.phase() == Phase::kStream)
    correct_tcp_info(*use->stream.load(std::memory_order_acquire), fd, value, *length);
  return result;
}

bool is_kept_option(int level, int name) {
  return level == IPPROTO_TCP &&
         (name == TCP_NODELAY || name == TCP_CORK || name == TCP_NOTSENT_LOWAT);
}

int get_kept_option(int fd, int name, void* value, socklen_t* length) {
  const SocketUse use(fd);
  int answer;
  if (!use || !has_live_stream(use.phase()) ||
      !use->stream.load(std::memory_order_acquire)->get_kept_option(name, answer))
    return real.getsockopt(fd, IPPROTO_TCP, name, value, length);
  return copy_out(answer, value, length);
}

int set_kept_option(int fd, int name, const void* value, socklen_t length) {
  const SocketUse use(fd);
  int wanted = 0;
  if (length >= sizeof(wanted)) memcpy(&wanted, value, sizeof(wanted));
  if (length < sizeof(wanted) || !use || !has_live_stream(use.phase()) ||
      !use->stream.load(std::memory_order_acquire)->set_kept_option(name, wanted))
    return real.setsockopt(fd, IPPROTO_TCP, name, value, length);
  return 0;
}

}  // namespace

int own_getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  if (level == SOL_DDP && !stands_aside()) return get_ddp_option(fd, name, value, length);
  if (is_ours(fd) && is_sound(length, sizeof *length) && is_sound(value, *length)) {
    if (level == SOL_SOCKET && name == SO_ERROR) return get_error(fd, value, length);
    if (level == SOL_SOCKET && name == SO_RCVLOWAT) return get_low_water(fd, value, length);
    if (level == IPPROTO_TCP && name == TCP_INQ) return get_tells_queue(fd, value, length);
    if (level == IPPROTO_TCP && name == TCP_INFO) return get_tcp_info(fd, value, length);
    if (is_kept_option(level, name)) return get_kept_option(fd, name, value, length);
    if (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE && is_stream(fd))
      return fail(ENOPROTOOPT);
  }
  return real.getsockopt(fd, level, name, value, length);
}

int own_setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  if (level == SOL_DDP && !stands_aside()) return set_ddp_option(fd, name, value, length);
  // Of nothing nothing is set.
  if (!is_sound(value, length)) return real.setsockopt(fd, level, name, value, length);
  const bool may_leave = needs_plain_tcp(level, name, value, length);
  if ((may_leave || needs_plain_tcp_later(level, name, value, length)) &&
      !make_room_for_kernel(fd, may_leave))
    return fail(ENOPROTOOPT);
  if (shapes_traffic(level, name)) note_shaped();
  if (level == IPPROTO_TCP && name == TCP_INQ) return set_tells_queue(fd, value, length);
  if (is_ours(fd)) {
    if (level == SOL_SOCKET && name == SO_RCVLOWAT) return set_low_water(fd, value, length);
    if (is_kept_option(level, name)) return set_kept_option(fd, name, value, length);
    if (would_break_framing(level, name) && is_stream(fd)) return fail(ENOPROTOOPT);
    if (shapes_traffic(level, name)) {
      const int result = real.setsockopt(fd, level, name, value, length);
      if (result == 0) follow_kernel(fd);
      return result;
    }
    if (level == SOL_SOCKET && name == SO_LINGER) {
      const int result = real.setsockopt(fd, level, name, value, length);
      if (result == 0) note_linger(fd, value, length);
      return result;
    }
  }
  return real.setsockopt(fd, level, name, value, length);
}

}  // namespace ddpsock::shim
