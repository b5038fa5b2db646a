// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A small client and server in one thread, whose system calls are the same in every run: as many
// rounds as the argument says. system_calls_test.py counts them.
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

namespace {

void check(bool is_right) {
  if (!is_right) abort();
}

void exchange(int client, int server) {
  char bytes[8] = "message";
  iovec part{bytes, sizeof bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  check(write(client, bytes, 8) == 8 && read(server, bytes, 8) == 8);
  check(send(server, bytes, 8, 0) == 8 && recv(client, bytes, 8, 0) == 8);
  check(writev(client, &part, 1) == 8 && readv(server, &part, 1) == 8);
  check(sendmsg(server, &message, 0) == 8 && recvmsg(client, &message, 0) == 8);
  check(recv(client, bytes, 8, MSG_DONTWAIT) == -1);
}

void wait_and_ask(int client, int server) {
  pollfd one{client, POLLOUT, 0};
  fd_set set;
  FD_ZERO(&set);
  FD_SET(client, &set);
  timeval now{0, 0};
  int value = 0;
  socklen_t length = sizeof value;
  epoll_event event{};
  event.events = EPOLLOUT;
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  check(poll(&one, 1, 0) == 1);
  check(select(client + 1, nullptr, &set, nullptr, &now) == 1);
  check(epoll_ctl(epoll, EPOLL_CTL_ADD, server, &event) == 0);
  check(epoll_wait(epoll, &event, 1, 0) == 1);
  check(close(epoll) == 0);
  check(ioctl(server, FIONREAD, &value) == 0);
  check(getsockopt(client, SOL_SOCKET, SO_ERROR, &value, &length) == 0);
  check(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
  check(fcntl(client, F_SETFL, fcntl(client, F_GETFL)) == 0);
  check(close(dup(client)) == 0);
}

void round_trip() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* where = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
  check(bind(listener, where, length) == 0 && listen(listener, 1) == 0);
  check(getsockname(listener, where, &length) == 0 && connect(client, where, length) == 0);
  const int server = accept(listener, nullptr, nullptr);
  for (int time = 0; time < 10; ++time) exchange(client, server);
  wait_and_ask(client, server);
  char byte;
  check(shutdown(client, SHUT_WR) == 0 && read(server, &byte, 1) == 0);
  check(close(client) == 0 && close(server) == 0 && close(listener) == 0);
}

}  // namespace

int main(int argc, char** argv) {
  check(argc == 2);
  for (int left = atoi(argv[1]); left > 0; --left) round_trip();
}
