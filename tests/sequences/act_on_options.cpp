// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "act.h"

namespace ddpsock::sequences {

const std::array<Name, 9> kOptions = {{{SO_RCVTIMEO, "SO_RCVTIMEO"},
                                       {SO_RCVLOWAT, "SO_RCVLOWAT"},
                                       {SO_ERROR, "SO_ERROR"},
                                       {SO_KEEPALIVE, "SO_KEEPALIVE"},
                                       {SO_LINGER, "SO_LINGER"},
                                       {SO_TYPE, "SO_TYPE"},
                                       {SO_ACCEPTCONN, "SO_ACCEPTCONN"},
                                       {TCP_NODELAY, "TCP_NODELAY"},
                                       {TCP_CORK, "TCP_CORK"}}};

namespace {

constexpr size_t kFirstOfTcp = 7;

int level_of(size_t which) {
  return which >= kFirstOfTcp ? IPPROTO_TCP : SOL_SOCKET;
}

void set_option(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]), value = op.argument[2];
  const size_t which = static_cast<size_t>(op.argument[1]);
  const int name = kOptions[which].value;
  int result;
  if (level_of(which) == SOL_SOCKET && name == SO_RCVTIMEO) {
    const timeval time{value / 1000, (value % 1000) * 1000L};
    result = setsockopt(fd, SOL_SOCKET, name, &time, sizeof time);
    if (Direction* way = incoming(object_of(fd)); result == 0 && way != nullptr)
      way->receive_timeout_ms = value;
  } else if (level_of(which) == SOL_SOCKET && name == SO_LINGER) {
    const linger end{value != 0 ? 1 : 0, 0};
    result = setsockopt(fd, SOL_SOCKET, name, &end, sizeof end);
  } else {
    result = setsockopt(fd, level_of(which), name, &value, sizeof value);
  }
  answer.add_result(result);
}

void get_option(const Op& op, Answer& answer) {
  const size_t which = static_cast<size_t>(op.argument[1]);
  int value[4] = {};
  socklen_t length = sizeof value;
  const int result =
      getsockopt(fd_of(op.argument[0]), level_of(which), kOptions[which].value, value, &length);
  answer.add_result(result);
  if (result != 0) return;
  answer.add(" length %u:", length);
  for (size_t i = 0; i < length / sizeof(int); ++i) answer.add(" %d", value[i]);
}

void set_nonblocking(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  int on = op.argument[1];
  if (op.argument[2] == 0) {
    const int flags = fcntl(fd, F_GETFL);
    answer.add("%#x ", static_cast<unsigned>(flags));
    answer.add_result(fcntl(fd, F_SETFL, on != 0 ? O_NONBLOCK : 0));
  } else {
    answer.add_result(ioctl(fd, FIONBIO, &on));
  }
}

void count_queued(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  int count = -1;
  const long result =
      op.argument[1] != 0 ? syscall(SYS_ioctl, fd, FIONREAD, &count) : ioctl(fd, FIONREAD, &count);
  answer.add_result(result);
  constexpr int kMuch = 32 * 1024;  // where what was sent may not be there yet
  if (result == 0) count > kMuch ? answer.add(" much") : answer.add(" %d", count);
}

}  // namespace

void act_on_options(const Op& op, Answer& answer) {
  switch (op.kind) {
    case Kind::kNonblocking:
      return set_nonblocking(op, answer);
    case Kind::kGetOption:
      return get_option(op, answer);
    case Kind::kSetOption:
      return set_option(op, answer);
    default:
      return count_queued(op, answer);
  }
}

}  // namespace ddpsock::sequences
