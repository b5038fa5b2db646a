// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "act.h"

namespace ddpsock::sequences {

const std::array<Option, kOptionCount> kOptions = {{
    {SOL_SOCKET, SO_RCVTIMEO, "SO_RCVTIMEO", {0, 3}},
    {SOL_SOCKET, SO_RCVLOWAT, "SO_RCVLOWAT", {1, 20}},
    {SOL_SOCKET, SO_ERROR, "SO_ERROR", {0, 0}},
    {SOL_SOCKET, SO_KEEPALIVE, "SO_KEEPALIVE", {0, 1}},
    {SOL_SOCKET, SO_LINGER, "SO_LINGER", {0, 1}},
    {SOL_SOCKET, SO_TYPE, "SO_TYPE", {1, 1}},
    {SOL_SOCKET, SO_ACCEPTCONN, "SO_ACCEPTCONN", {0, 1}},
    {SOL_SOCKET, SO_SNDTIMEO, "SO_SNDTIMEO", {0, 30000}},
    {SOL_SOCKET, SO_DOMAIN, "SO_DOMAIN", {0, 1}},
    {SOL_SOCKET, SO_PROTOCOL, "SO_PROTOCOL", {0, 1}},
    {SOL_SOCKET, SO_REUSEADDR, "SO_REUSEADDR", {0, 1}},
    {SOL_SOCKET, SO_BROADCAST, "SO_BROADCAST", {0, 1}},
    {SOL_SOCKET, SO_PRIORITY, "SO_PRIORITY", {0, 3}},
    {SOL_SOCKET, SO_OOBINLINE, "SO_OOBINLINE", {0, 0}},
    {SOL_SOCKET, SO_SNDLOWAT, "SO_SNDLOWAT", {1, 2}},
    {SOL_SOCKET, 9999, "option 9999", {0, 1}},
    {IPPROTO_IP, IP_TOS, "IP_TOS", {0, 16}},
    {IPPROTO_IP, IP_TTL, "IP_TTL", {64, 3}},
    {IPPROTO_TCP, TCP_NODELAY, "TCP_NODELAY", {1, 1}},
    {IPPROTO_TCP, TCP_CORK, "TCP_CORK", {0, 0}},
    {IPPROTO_TCP, TCP_KEEPIDLE, "TCP_KEEPIDLE", {7200, 60}},
    {IPPROTO_TCP, TCP_KEEPINTVL, "TCP_KEEPINTVL", {75, 0}},
    {IPPROTO_TCP, TCP_KEEPCNT, "TCP_KEEPCNT", {9, 3}},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, "TCP_USER_TIMEOUT", {0, 30000}},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, "TCP_NOTSENT_LOWAT", {-1, 100000}},
    {IPPROTO_TCP, TCP_LINGER2, "TCP_LINGER2", {0, 10}},
    {IPPROTO_TCP, TCP_SYNCNT, "TCP_SYNCNT", {6, 3}},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, "TCP_DEFER_ACCEPT", {0, 0}},
    {IPPROTO_TCP, 9999, "TCP option 9999", {0, 1}},
}};

namespace {

bool is_time(const Option& option) {
  return option.level == SOL_SOCKET && (option.name == SO_RCVTIMEO || option.name == SO_SNDTIMEO);
}

int set_by(int how, int fd, const Option& option, const void* value, socklen_t size) {
  return how != 0
             ? static_cast<int>(syscall(SYS_setsockopt, fd, option.level, option.name, value, size))
             : setsockopt(fd, option.level, option.name, value, size);
}

void set_option(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]), value = op.argument[2], how = op.argument[3];
  const Option& option = kOptions[static_cast<size_t>(op.argument[1])];
  int result;
  if (is_time(option)) {
    const timeval time{value / 1000, (value % 1000) * 1000L};
    result = set_by(how, fd, option, &time, sizeof time);
    Direction* way = incoming(object_of(fd));
    if (option.name == SO_RCVTIMEO && result == 0 && way != nullptr)
      way->receive_timeout_ms = value;
  } else if (option.level == SOL_SOCKET && option.name == SO_LINGER) {
    const linger end{value != 0 ? 1 : 0, 0};
    result = set_by(how, fd, option, &end, sizeof end);
  } else {
    result = set_by(how, fd, option, &value, sizeof value);
  }
  answer.add_result(result);
}

void get_option(const Op& op, Answer& answer) {
  const Option& option = kOptions[static_cast<size_t>(op.argument[1])];
  const int fd = fd_of(op.argument[0]);
  int value[4] = {};
  socklen_t length = sizeof value;
  const long result = op.argument[3] != 0
                          ? syscall(SYS_getsockopt, fd, option.level, option.name, value, &length)
                          : getsockopt(fd, option.level, option.name, value, &length);
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

// What is not acknowledged yet is TCP's affair; never more than was sent, and a beginning or an
// end.
void count_outgoing(int fd, Answer& answer) {
  int count = -1;
  const int result = ioctl(fd, SIOCOUTQ, &count);
  answer.add_result(result);
  const Direction* way = outgoing(object_of(fd));
  if (result != 0 || way == nullptr) return;
  if (is_being_filled(object_of(fd)) || way->is_broken_off) return;
  if (count < 0 || static_cast<uint64_t>(count) > way->sent + 1)
    answer.add(" %d, which is more than was sent", count);
}

void count_queued(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  const Queued how = static_cast<Queued>(op.argument[1]);
  if (how == Queued::kOutgoing) return count_outgoing(fd, answer);
  if (how == Queued::kAtMark) return answer.add_result(sockatmark(fd));
  int count = -1;
  const long result = how == Queued::kRawFionread ? syscall(SYS_ioctl, fd, FIONREAD, &count)
                                                  : ioctl(fd, FIONREAD, &count);
  answer.add_result(result);
  constexpr int kMuch = 32 * 1024;  // where what was sent may not be there yet
  const Direction* way = incoming(object_of(fd));
  const bool is_filled = way != nullptr && way->was_filled && count > 0;
  if (result == 0) is_filled || count > kMuch ? answer.add(" much") : answer.add(" %d", count);
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
