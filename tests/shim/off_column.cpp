// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls on a plain connection, a hundred of each kind in a function of its own, whose instructions
// off_column_test.py has counted. Each is called twice: what a first call does once does not count.
//
// off_column alone PORT       towards a server without the library
// off_column beside PORT      the same, in a process that has a connection in DDPMODE too
// off_column returned PORT    a connection that was in DDPMODE before; the port is not used
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "ddpsock/ddpsock.h"

namespace {

constexpr int kTimes = 100;
int server_port = 0;

void check(bool is_right) {
  if (!is_right) abort();
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int connect_to(sockaddr_in address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  check(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

void check_mode(int fd, bool is_stream) {
  ddp_status status{};
  socklen_t length = sizeof status;
  const bool is_asked = getsockopt(fd, SOL_DDP, DDP_STATUS, &status, &length) == 0;
  check((is_asked && status.mode == DDP_MODE_STREAM) == is_stream);
}

// One end of a connection whose ends are both here, and in DDPMODE.
int connect_to_self() {
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* where = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  check(bind(listener, where, length) == 0 && listen(listener, 1) == 0);
  check(getsockname(listener, where, &length) == 0);
  const int client = connect_to(address), server = accept(listener, nullptr, nullptr);
  char byte = 0;
  check(send(client, &byte, 1, 0) == 1 && recv(server, &byte, 1, 0) == 1);
  check(send(server, &byte, 1, 0) == 1 && recv(client, &byte, 1, 0) == 1);
  close(listener);
  check_mode(client, true);
  return client;
}

int connect_and_return() {
  const int fd = connect_to_self();
  for (int is_on : {1, 0})
    check(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &is_on, sizeof is_on) == 0);
  check_mode(fd, false);
  return fd;
}

}  // namespace

// Named as the driver asks for them.
#define CASE(name)                       \
  extern "C" void case_##name(int, int); \
  extern "C" [[gnu::noinline]] void case_##name([[maybe_unused]] int fd, [[maybe_unused]] int set)
#define TIMES for (int time = 0; time < kTimes; ++time)

CASE(read) {
  char byte;
  TIMES check(read(fd, &byte, 1) == -1);
}

CASE(write) {
  TIMES check(write(fd, "x", 1) == 1);
}

CASE(recv) {
  char byte;
  TIMES check(recv(fd, &byte, 1, 0) == -1);
}

CASE(send) {
  TIMES check(send(fd, "x", 1, MSG_NOSIGNAL) == 1);
}

CASE(readv) {
  char byte;
  const iovec part{&byte, 1};
  TIMES check(readv(fd, &part, 1) == -1);
}

CASE(writev) {
  char byte = 'x';
  const iovec part{&byte, 1};
  TIMES check(writev(fd, &part, 1) == 1);
}

CASE(recvmsg) {
  char byte;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  TIMES check(recvmsg(fd, &message, 0) == -1);
}

CASE(sendmsg) {
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  TIMES check(sendmsg(fd, &message, MSG_NOSIGNAL) == 1);
}

CASE(poll) {
  pollfd one{fd, POLLIN | POLLOUT, 0};
  TIMES check(poll(&one, 1, 0) == 1);
}

CASE(poll_of_ten) {
  pollfd ten[10];
  for (pollfd& one : ten) one = {fd, POLLIN | POLLOUT, 0};
  TIMES check(poll(ten, 10, 0) == 10);
}

CASE(select) {
  TIMES {
    fd_set writers;
    FD_ZERO(&writers);
    FD_SET(fd, &writers);
    timeval now{0, 0};
    check(select(fd + 1, nullptr, &writers, nullptr, &now) == 1);
  }
}

CASE(epoll_wait) {
  epoll_event events[64];
  TIMES check(epoll_wait(set, events, 64, 0) == 1);
}

CASE(epoll_ctl) {
  epoll_event event{};
  event.events = EPOLLOUT;
  TIMES check(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
}

CASE(getsockopt) {
  int value = 0;
  socklen_t length = sizeof value;
  TIMES check(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length) == 0);
}

CASE(setsockopt) {
  const int value = 1;
  TIMES check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
}

CASE(ioctl) {
  int value = 0;
  TIMES check(ioctl(fd, FIONREAD, &value) == 0);
}

CASE(fcntl) {
  TIMES check(fcntl(fd, F_GETFL) >= 0);
}

CASE(dup_and_close) {
  TIMES check(close(dup(fd)) == 0);
}

CASE(socket_and_close) {
  TIMES check(close(socket(AF_INET, SOCK_STREAM, 0)) == 0);
}

CASE(connect_and_close) {
  TIMES check(close(connect_to(loopback(server_port))) == 0);
}

int main(int argc, char** argv) {
  check(argc == 3);
  const std::string_view how = argv[1];
  server_port = atoi(argv[2]);
  if (how == "beside") connect_to_self();
  const int fd = how == "returned" ? connect_and_return() : connect_to(loopback(server_port));
  const int set = epoll_create1(EPOLL_CLOEXEC);
  check_mode(fd, false);
  check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  epoll_event event{};
  event.events = EPOLLOUT;
  check(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
  for (const auto run : {case_read,
                         case_write,
                         case_recv,
                         case_send,
                         case_readv,
                         case_writev,
                         case_recvmsg,
                         case_sendmsg,
                         case_poll,
                         case_poll_of_ten,
                         case_select,
                         case_epoll_wait,
                         case_epoll_ctl,
                         case_getsockopt,
                         case_setsockopt,
                         case_ioctl,
                         case_fcntl,
                         case_dup_and_close,
                         case_socket_and_close,
                         case_connect_and_close})
    for (int time = 0; time < 2; ++time) run(fd, set);
}
