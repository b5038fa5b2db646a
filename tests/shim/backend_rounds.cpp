// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// backend_rounds N   N questions and answers between a client that blocks and a server that waits
// as PostgreSQL's backends do: a non-blocking socket, asked first, and then an epoll set that holds
// a pipe as well and has room for one event.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

namespace {

constexpr int kLeast = 20;  // until both ends are in memory
char message[64];

void expect(bool is_true) {
  if (!is_true) _exit(1);
}

void receive_blocking(int fd) {
  expect(recv(fd, message, sizeof message, MSG_WAITALL) == sizeof message);
}

void receive_waiting(int fd, int set) {
  for (size_t got = 0; got < sizeof message;) {
    const ssize_t n = recv(fd, message, sizeof message - got, 0);
    if (n > 0) {
      got += static_cast<size_t>(n);
      continue;
    }
    expect(n < 0 && errno == EAGAIN);
    epoll_event event;
    expect(epoll_wait(set, &event, 1, -1) == 1);
  }
}

void serve(int listener, int rounds) {
  const int fd = accept(listener, nullptr, nullptr);
  int pipes[2];
  expect(fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && pipe(pipes) == 0);
  const int set = epoll_create1(0);
  for (const int member : {fd, pipes[0]}) {
    epoll_event event{EPOLLIN, {.fd = member}};
    expect(epoll_ctl(set, EPOLL_CTL_ADD, member, &event) == 0);
  }
  for (int i = 0; i < rounds; ++i) {
    receive_waiting(fd, set);
    expect(send(fd, message, sizeof message, 0) == sizeof message);
  }
}

}  // namespace

int main(int argc, char** argv) {
  alarm(60);
  const int rounds = kLeast + (argc > 1 ? std::atoi(argv[1]) : 0);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* where = reinterpret_cast<sockaddr*>(&address);
  expect(bind(listener, where, size) == 0 && listen(listener, 1) == 0 &&
         getsockname(listener, where, &size) == 0);
  const pid_t server = fork();
  if (server == 0) {
    serve(listener, rounds);
    return 0;
  }
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  expect(connect(fd, where, size) == 0);
  for (int i = 0; i < rounds; ++i) {
    usleep(2000);  // until it sleeps
    expect(send(fd, message, sizeof message, 0) == sizeof message);
    receive_blocking(fd);
  }
  int status = 1;
  expect(waitpid(server, &status, 0) == server);
  return status == 0 ? 0 : 1;
}
