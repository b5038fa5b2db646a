// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// getsockopt and setsockopt: our own level, the options whose meaning is in the stream, and those
// that would break its framing. Everything else is true of the TCP socket and passes.
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include <algorithm>

#include "ddpsock/ddpsock.h"
#include "shim/calls.h"
#include "shim/connection.h"
#include "shim/ddp_options.h"
#include "shim/leaving.h"
#include "shim/libc_edge.h"
#include "shim/listeners.h"
#include "shim/message_socket.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

// Would change, consume or add bytes below the framing, or report what counts them. Refused as by
// a kernel that lacks them: programs then do without.
bool would_break_framing(int level, int name) {
  if (level == SOL_SOCKET)
    return name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF || name == SO_ZEROCOPY ||
           name == SO_PEEK_OFF;
  if (level != IPPROTO_TCP) return false;
  switch (name) {
    case TCP_ULP:
    case TCP_REPAIR:
    case TCP_REPAIR_QUEUE:
    case TCP_QUEUE_SEQ:
    case TCP_REPAIR_OPTIONS:
    case TCP_INQ:
    case TCP_ZEROCOPY_RECEIVE:
      return true;
    default:
      return false;
  }
}

// Asks for what recvmsg() then tells of segments: only the kernel knows.
bool tells_of_segments(int level, int name) {
  return level == SOL_SOCKET &&
         (name == SO_TIMESTAMP || name == SO_TIMESTAMPNS || name == SO_TIMESTAMPING ||
          name == SO_TIMESTAMP_NEW || name == SO_TIMESTAMPNS_NEW || name == SO_TIMESTAMPING_NEW);
}

bool is_switched_on(const void* value, socklen_t length) {
  int flags = 0;
  if (value == nullptr || length < sizeof flags) return false;
  memcpy(&flags, value, sizeof flags);
  return flags != 0;
}

bool is_stream(int fd) {
  const SocketUse use(fd);
  return use && (has_live_stream(use.phase()) || use.phase() == Phase::kMessage);
}

// Sees to it that the kernel's time stamps come. False: they would not.
bool make_room_for_time_stamps(int fd) {
  Wish wish = Wish::kNone;
  bool is_known_listener = false;
  if (const SocketUse use(fd); use) {
    if (has_live_stream(use.phase()) || use.phase() == Phase::kMessage)
      return leave_ddp_mode(fd, "time stamps");
    wish = use->wish.load(std::memory_order_relaxed);
    is_known_listener = use.phase() == Phase::kListening;
  }
  if ((wish == Wish::kNone && !is_policy_active()) || !is_tcp_socket(fd)) return true;
  const bool is_listener = is_known_listener || is_listening_tcp(fd);
  if (!is_listener && tcp_state(fd) != Tcp::kFailed) return true;
  if (!permits_time_stamps(wish)) return false;
  if (is_known_listener) forget_listener(fd);
  return true;
}

int copy_out(int answer, void* value, socklen_t* length) {
  const auto size = std::min<socklen_t>(*length, sizeof(answer));
  memcpy(value, &answer, size);
  *length = size;
  return 0;
}

// The moment at which a program learns how a non-blocking connect() went.
int get_error(int fd, void* value, socklen_t* length) {
  SocketUse use(fd);
  int error = 0;
  if (use && use.phase() == Phase::kConnecting) error = complete_connect(use, fd, false);
  if (use && use.phase() == Phase::kMessage) error = message_socket_error(use);
  if (error != 0 && error != EAGAIN) return copy_out(error, value, length);
  const int result = real.getsockopt(fd, SOL_SOCKET, SO_ERROR, value, length);
  if (result == 0 && *length == sizeof(error) && use && has_live_stream(use.phase())) {
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

int get_low_water(int fd, void* value, socklen_t* length) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase()))
    return real.getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, value, length);
  return copy_out(use->receive_low_water.load(std::memory_order_relaxed), value, length);
}

int set_low_water(int fd, const void* value, socklen_t length) {
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase()))
    return real.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, value, length);
  if (length < sizeof(int)) return fail(EINVAL);
  int bytes;
  memcpy(&bytes, value, sizeof(bytes));
  // As the kernel reads it: negative is "as much as can be", 0 is 1.
  bytes = bytes < 0 ? INT_MAX : std::max(bytes, 1);
  use->receive_low_water.store(bytes, std::memory_order_relaxed);
  use->stream.load(std::memory_order_acquire)->set_receive_low_water(bytes);
  return 0;
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
  if (is_ours(fd) && value != nullptr && length != nullptr) {
    if (level == SOL_SOCKET && name == SO_ERROR) return get_error(fd, value, length);
    if (level == SOL_SOCKET && name == SO_RCVLOWAT) return get_low_water(fd, value, length);
    if (is_kept_option(level, name)) return get_kept_option(fd, name, value, length);
    if (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE && is_stream(fd))
      return fail(ENOPROTOOPT);
  }
  return real.getsockopt(fd, level, name, value, length);
}

int own_setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  if (level == SOL_DDP && !stands_aside()) return set_ddp_option(fd, name, value, length);
  if (tells_of_segments(level, name) && is_switched_on(value, length) &&
      !make_room_for_time_stamps(fd))
    return fail(ENOPROTOOPT);
  if (is_ours(fd)) {
    if (level == SOL_SOCKET && name == SO_RCVLOWAT && value != nullptr)
      return set_low_water(fd, value, length);
    if (is_kept_option(level, name) && value != nullptr)
      return set_kept_option(fd, name, value, length);
    if (would_break_framing(level, name) && is_stream(fd)) return fail(ENOPROTOOPT);
    if (level == SOL_SOCKET && name == SO_LINGER) {
      const int result = real.setsockopt(fd, level, name, value, length);
      if (result == 0) note_linger(fd, value, length);
      return result;
    }
  }
  return real.setsockopt(fd, level, name, value, length);
}

}  // namespace ddpsock::shim
