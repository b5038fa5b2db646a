// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two ends of a connection in message mode, as a program written against ddpsock.h makes them.
#ifndef DDPSOCK_TESTS_MESSAGE_ENDS_H_
#define DDPSOCK_TESTS_MESSAGE_ENDS_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddpsock/ddpsock.h"

namespace ddpsock::message_tests {

inline constexpr int kPatienceMs = 10'000;

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// Ends the program after a minute: a test that hangs has failed.
void arm_alarm();

Fd make_socket();
// Sockets with nothing but the mode set; `set` may do more before they are used.
void set_mode(int fd, int mode = DDP_MODE_MESSAGE, int role = DDP_ROLE_AUTO);
template <typename T>
int set_option(int fd, int name, const T& value) {
  return setsockopt(fd, SOL_DDP, name, &value, sizeof value);
}
ddp_status status_of(int fd);

struct Listener {
  Fd fd;
  sockaddr_in address{};
};
// In message mode unless `is_plain`.
Listener listen_on_loopback(bool is_plain = false);
// The blocking connect() as it is.
int connect_to(int fd, const Listener& listener);

// Which engine serves a connection of these, as the environment (MESSAGE_ENGINES) has it: "shm" or
// "user" for both ends, "user_listener" and "user_client" for an end that wants no shared memory.
const char* expected_engine();

// A connected pair: `client` connected, `server` was accepted and has not started yet when
// `before_start(server)` is called.
struct Ends {
  Fd client, server;
};
struct PairOptions {
  ddp_depths client{64, 64, 16, 16}, server{64, 64, 16, 16};
  int progress = DDP_PROGRESS_THREAD;
  int client_cq = -1, server_cq = -1;
  int server_srq = -1;
  int markers = 0;
};
Ends connect_ends(const PairOptions& options = {});

// Posts one and expects it to be accepted.
void post_send(int fd, std::string_view bytes, uint64_t cookie = 0, uint32_t flags = 0);
void post_recv(int fd, std::string& room, uint64_t cookie = 0);
ddp_send_work send_work(const iovec& part, uint64_t cookie = 0, uint32_t flags = 0);
ddp_recv_work recv_work(const iovec& part, uint64_t cookie = 0);
iovec part_of(std::string_view bytes);

// The next completion; fails the test when none comes. DDP_ESTABLISHED is skipped.
ddp_completion next(int fd);
// The next, which is of this kind.
ddp_completion next(int fd, ddp_kind kind, uint64_t cookie = 0);
// None comes within a moment.
void expect_nothing(int fd);

// errno of a call that must have failed.
#define EXPECT_ERRNO(error, call)     \
  do {                                \
    errno = 0;                        \
    EXPECT_EQ((call), -1) << #call;   \
    EXPECT_EQ(errno, error) << #call; \
  } while (0)

}  // namespace ddpsock::message_tests

#endif  // DDPSOCK_TESTS_MESSAGE_ENDS_H_
