// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// short_connections N: two processes, N connections one after the other, each with a request, an
// answer and an end. For those who count system calls.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace {

using Message = std::array<char, 100>;

void expect(bool is_so, const char* what) {
  if (is_so) return;
  perror(what);
  _exit(1);
}

void serve(int listener, int count) {
  Message message;
  for (int i = 0; i < count; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    expect(fd >= 0, "accept");
    expect(recv(fd, message.data(), message.size(), 0) == ssize_t{sizeof message}, "a request");
    expect(send(fd, message.data(), message.size(), 0) == ssize_t{sizeof message}, "an answer");
    expect(recv(fd, message.data(), message.size(), 0) == 0, "the end");
    close(fd);
  }
}

void ask(const sockaddr_in& server, int count) {
  Message message{};
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    expect(connect(fd, reinterpret_cast<const sockaddr*>(&server), sizeof server) == 0, "connect");
    expect(send(fd, message.data(), message.size(), 0) == ssize_t{sizeof message}, "send");
    expect(recv(fd, message.data(), message.size(), 0) == ssize_t{sizeof message}, "recv");
    close(fd);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof server;
  auto* name = reinterpret_cast<sockaddr*>(&server);
  expect(bind(listener, name, length) == 0 && getsockname(listener, name, &length) == 0, "bind");
  expect(listen(listener, 8) == 0, "listen");
  const pid_t child = fork();
  if (child == 0) {
    serve(listener, count);
    _exit(0);
  }
  ask(server, count);
  int status = -1;
  expect(waitpid(child, &status, 0) == child && status == 0, "the server");
  return 0;
}
