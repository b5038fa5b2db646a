// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An event loop with more connections than the library looks at: messages on any of them, now from
// few and now from all, from two processes, each seen once and before long, whatever becomes of the
// processes.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr size_t kClients = 2;
constexpr int kRounds = 400;
// Milliseconds: what takes longer hangs. All connect first.
constexpr int kLong = 3'000, kToConnect = 20'000;

// Of each client. More, with all the columns, would take the host's ports for a minute (TIME_WAIT).
size_t stream_count() {
  return is_in_memory() ? 200 : 20;
}

// Sends on some of its streams at once, and has the answers before it goes on. Most of the time on
// the streams of a few, so that some are busy and others idle for long.
void run_client(const sockaddr_in& address, size_t count, uint32_t seed) {
  std::vector<Fd> fds;
  for (size_t i = 0; i < count; ++i) {
    fds.push_back(dial(address));
    set_timeout(fds.back().get(), SO_RCVTIMEO, kToConnect);
  }
  std::mt19937 random(seed);
  std::vector<uint32_t> sent(count, 0);
  size_t first = 0, among = count;
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    if (round % 50 == 0) {
      among = round % 100 == 0 ? count : 1 + random() % 20;
      first = random() % (count - among + 1);
    }
    std::vector<size_t> busy;
    for (size_t n = 1 + random() % 8; n > 0; --n) {
      const size_t i = first + random() % among;
      busy.push_back(i);
      ++sent[i];
      send_all(fds[i].get(), {reinterpret_cast<const char*>(&sent[i]), sizeof sent[i]});
    }
    if (random() % 16 == 0) sleep_ms(2);
    std::vector<uint32_t> answers(count, 0);
    for (const size_t i : busy) {
      uint32_t answer = 0;
      const std::string bytes = recv_exactly(fds[i].get(), sizeof answer);
      ASSERT_EQ(bytes.size(), sizeof answer) << "stream " << i << ", round " << round;
      memcpy(&answer, bytes.data(), sizeof answer);
      ASSERT_GT(answer, answers[i]);
      ASSERT_LE(answer, sent[i]);
      answers[i] = answer;
    }
    if (round == 0)
      for (const Fd& fd : fds) set_timeout(fd.get(), SO_RCVTIMEO, kLong);
  }
}

class Server {
 public:
  Server(int listener, size_t count, size_t room) : events_(room) {
    for (size_t i = 0; i < count; ++i) {
      streams_.push_back({accept_one(listener), 0});
      make_nonblocking(streams_.back().fd.get());
      epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
      EXPECT_EQ(epoll_ctl(set_.get(), EPOLL_CTL_ADD, streams_.back().fd.get(), &event), 0);
    }
    open_ = count;
  }

  // Until `left` streams are left, or `most` messages have come.
  void serve(size_t left, size_t most) {
    for (size_t served = 0; open_ > left && served < most;) {
      const int n = epoll_wait(set_.get(), events_.data(), int(events_.size()), 2 * kLong);
      ASSERT_GT(n, 0) << "with " << open_ << " streams open: " << strerror(errno);
      for (int i = 0; i < n; ++i) served += answer(events_[size_t(i)].data.u64);
    }
  }
  size_t open() const { return open_; }

 private:
  struct Stream {
    Fd fd;
    uint32_t seen;
  };

  // How many messages there were; an end closes the stream.
  size_t answer(size_t number) {
    Stream& stream = streams_[number];
    std::array<uint32_t, 8> messages;
    const ssize_t n = recv(stream.fd.get(), messages.data(), sizeof messages, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) {
      EXPECT_TRUE(n == 0 || errno == ECONNRESET) << strerror(errno);
      stream.fd.close();
      --open_;
      return 0;
    }
    const auto count = size_t(n) / sizeof messages[0];
    EXPECT_EQ(size_t(n), count * sizeof messages[0]);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(messages[i], ++stream.seen) << "stream " << number;
      const ssize_t sent = send(stream.fd.get(), &messages[i], sizeof messages[i], MSG_NOSIGNAL);
      EXPECT_TRUE(sent > 0 || errno == EPIPE || errno == ECONNRESET) << strerror(errno);
    }
    return count;
  }

  Fd set_{epoll_create1(EPOLL_CLOEXEC)};
  std::vector<Stream> streams_;
  std::vector<epoll_event> events_;
  size_t open_ = 0;
};

class ManyStreams : public TcpTest {
 protected:
  ManyStreams() {
    start_deadline(60);
    for (uint32_t i = 0; i < kClients; ++i)
      clients.push_back(
          std::make_unique<Child>([=, this] { run_client(listener.address, count, i + 1); }));
  }

  const size_t count = stream_count();
  Listener listener = listen_loopback();
  std::vector<std::unique_ptr<Child>> clients;
};

TEST_F(ManyStreams, EachMessageIsSeenOnce) {
  Server server(listener.fd.get(), kClients * count, 64);
  server.serve(0, SIZE_MAX);
  for (const auto& client : clients) client->expect_success();
}

// The kernel's order is the only one that is known.
TEST_F(ManyStreams, WithRoomForFewEventsToo) {
  Server server(listener.fd.get(), kClients * count, 4);
  server.serve(0, SIZE_MAX);
  for (const auto& client : clients) client->expect_success();
}

TEST_F(ManyStreams, AfterAForkToo) {
  Server server(listener.fd.get(), kClients * count, 64);
  for (int i = 0; i < 3; ++i) {
    server.serve(0, 200);
    Child child([] {});
    child.expect_success();
  }
  server.serve(0, SIZE_MAX);
  for (const auto& client : clients) client->expect_success();
}

TEST_F(ManyStreams, AKilledPeersEndsAreAllReported) {
  Server server(listener.fd.get(), kClients * count, 64);
  server.serve(0, 300);
  clients[1]->kill_now();
  server.serve(0, SIZE_MAX);
  EXPECT_EQ(server.open(), 0u);
  clients[0]->expect_success();
}

}  // namespace
}  // namespace ddpsock::shim_tests
