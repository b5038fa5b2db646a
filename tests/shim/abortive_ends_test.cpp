// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Ends that are errors, and timeouts, as TCP tells of them: to whom, how, and how soon.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

const std::string& much() {
  static const std::string bytes = pattern(16 << 20);
  return bytes;
}

// The other end, in a process that is killed once `body` is done.
class Killed {
 public:
  explicit Killed(const std::function<void(int)>& body) : listener_(listen_loopback()) {
    pid_ = fork();
    if (pid_ == 0) {
      alarm(20);
      const int fd = accept_one(listener_.fd.get()).release();
      body(fd);
      raise(SIGKILL);
    }
    client_ = dial(listener_.address);
  }
  ~Killed() { end(); }
  Killed(const Killed&) = delete;
  int client() const { return client_.get(); }
  void await() {
    if (pid_ > 0) waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  void end() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    await();
  }

 private:
  Listener listener_;
  Fd client_;
  pid_t pid_;
};

ssize_t read_to_end(int fd) {
  char bytes[65'536];
  ssize_t n;
  while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) continue;
  return n;
}

class AbortiveEnds : public TcpTest {};

// What came is followed by the reset, not by an end: the rest is missing.
TEST_F(AbortiveEnds, OfASenderWithoutRoomIsAReset) {
  for (int round = 0; round < 3; ++round) {
    Pair pair = connected_pair();
    expect_alive(pair.client.get(), pair.server.get());
    while (send(pair.server.get(), much().data(), much().size(), MSG_DONTWAIT) > 0) continue;
    ASSERT_EQ(errno, EAGAIN);
    const linger reset{1, 0};
    ASSERT_EQ(setsockopt(pair.server.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    pair.server.close();
    EXPECT_EQ(read_to_end(pair.client.get()), -1);
    EXPECT_EQ(errno, ECONNRESET);
  }
}

TEST_F(AbortiveEnds, OfAKilledSenderThatHadNotReadIsAReset) {
  Killed server([&](int fd) {
    send_all(fd, recv_exactly(fd, 1));
    pollfd p{fd, POLLIN, 0};
    poll(&p, 1, 5000);
    while (send(fd, much().data(), much().size(), MSG_DONTWAIT) > 0) continue;
  });
  send_all(server.client(), "q");
  EXPECT_EQ(recv_exactly(server.client(), 1), "q");
  send_all(server.client(), "not read");
  server.await();
  EXPECT_EQ(read_to_end(server.client()), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// A program that only writes, now and then, is told as soon as TCP would tell it.
TEST_F(AbortiveEnds, OfAReaderAreToldToWhoOnlyWrites) {
  Killed server([&](int fd) {
    send_all(fd, recv_exactly(fd, 1));
    recv_exactly(fd, 100);
  });
  send_all(server.client(), "q");
  EXPECT_EQ(recv_exactly(server.client(), 1), "q");
  sleep_ms(50);
  server.end();
  int accepted = 0;
  while (accepted < 100 && send(server.client(), "a line", 6, MSG_NOSIGNAL) == 6) {
    ++accepted;
    sleep_ms(20);
  }
  EXPECT_LE(accepted, 2);
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << strerror(errno);
}

std::atomic<int> broken_pipes{0};

// A reset is an error once, and no signal; after that the pipe is broken.
TEST_F(AbortiveEnds, OfAReaderAreNoSignalAtFirst) {
  struct sigaction action{}, before{};
  action.sa_handler = [](int) { ++broken_pipes; };
  sigaction(SIGPIPE, &action, &before);
  Killed server([&](int fd) {
    send_all(fd, recv_exactly(fd, 1));
    sleep_ms(100);
  });
  send_all(server.client(), "q");
  EXPECT_EQ(recv_exactly(server.client(), 1), "q");
  while (send(server.client(), much().data(), much().size(), 0) >= 0) continue;
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(broken_pipes, 0);
  EXPECT_EQ(send(server.client(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(broken_pipes, 1);
  sigaction(SIGPIPE, &before, nullptr);
}

// The timeout is the call's, however often there is room in between.
TEST_F(AbortiveEnds, ATimeoutIsOfTheWholeSend) {
  if (column() == Column::kOneSided) GTEST_SKIP() << "the peer's thread makes room by itself";
  const Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  const timeval limit{0, 300'000};
  ASSERT_EQ(setsockopt(pair.client.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0);
  std::atomic<bool> is_over{false};
  std::jthread reader([&] {
    std::string bytes(1 << 20, 0);
    while (!is_over) {
      sleep_ms(150);
      while (!is_over && recv(pair.server.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0)
        continue;
    }
  });
  const std::string endless = pattern(256 << 20);
  const int64_t start = now_ms();
  EXPECT_GT(send(pair.client.get(), endless.data(), endless.size(), 0), 0);
  EXPECT_LT(now_ms() - start, 2000);
  is_over = true;
}

}  // namespace
}  // namespace ddpsock::shim_tests
