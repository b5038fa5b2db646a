// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What rings_test.py runs: an ordinary program that moves its bytes by liburing.
//   server          prints its port, accepts one client, sends back what comes
//   client PORT N   sends N bytes, prints how many came back as they were
#include <arpa/inet.h>
#include <liburing.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

io_uring ring;

// One request at a time.
template <typename Prepare>
int run(Prepare prepare) {
  prepare(io_uring_get_sqe(&ring));
  io_uring_cqe* done = nullptr;
  if (io_uring_submit(&ring) < 0 || io_uring_wait_cqe(&ring, &done) < 0) return -1;
  const int result = done->res;
  io_uring_cqe_seen(&ring, done);
  return result;
}

int receive(int fd, char* room, size_t size) {
  return run([=](io_uring_sqe* e) { io_uring_prep_recv(e, fd, room, size, 0); });
}

bool send_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const int n = run([=](io_uring_sqe* e) { io_uring_prep_send(e, fd, bytes, size, 0); });
    if (n <= 0) return false;
    bytes += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// Where nobody can find the ring any more who looks when a program listens or connects.
void set_up_ring() {
  if (io_uring_queue_init(8, &ring, 0) != 0) exit(77);
}

int serve() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  auto* where = reinterpret_cast<sockaddr*>(&at);
  if (bind(listener, where, length) != 0 || listen(listener, 1) != 0) return perror("listen"), 1;
  set_up_ring();
  getsockname(listener, where, &length);
  printf("%d\n", ntohs(at.sin_port));
  fflush(stdout);
  const int fd =
      run([=](io_uring_sqe* e) { io_uring_prep_accept(e, listener, nullptr, nullptr, 0); });
  if (fd < 0) return 2;
  static char room[50'000];
  int n;
  while ((n = receive(fd, room, sizeof room)) > 0)
    if (!send_all(fd, room, static_cast<size_t>(n))) return 3;
  return n == 0 ? 0 : 4;
}

int ask(int port, size_t size) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return perror("connect"), 1;
  set_up_ring();
  constexpr size_t kPiece = 20'000;
  std::string bytes(kPiece, '\0'), back(kPiece, '\0');
  size_t right = 0;
  for (size_t at_byte = 0; at_byte < size; at_byte += kPiece) {
    const size_t piece = std::min(kPiece, size - at_byte);
    for (size_t i = 0; i < piece; ++i) bytes[i] = static_cast<char>((at_byte + i) * 7 >> 3);
    if (!send_all(fd, bytes.data(), piece)) return 2;
    for (size_t have = 0; have < piece;) {
      const int n = receive(fd, back.data() + have, piece - have);
      if (n <= 0) return 3;
      have += static_cast<size_t>(n);
    }
    if (memcmp(bytes.data(), back.data(), piece) == 0) right += piece;
  }
  printf("%zu\n", right);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 4) return ask(atoi(arguments[2]), strtoul(arguments[3], nullptr, 10));
  return serve();
}
