// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// epoll as event loops use it: triggers, one-shot, changes, what closing and duplicating does to a
// set.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Epoll : public TcpTest {
 protected:
  int control(int operation, int fd, uint32_t events, uint64_t data = 0) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return epoll_ctl(epoll_.get(), operation, fd, &event);
  }
  void add(int fd, uint32_t events) { ASSERT_EQ(control(EPOLL_CTL_ADD, fd, events), 0); }
  void expect_control_fails(int operation, int fd, int error) {
    EXPECT_EQ(control(operation, fd, EPOLLIN), -1);
    EXPECT_EQ(errno, error) << strerror(errno);
  }
  uint32_t wait(int milliseconds = 3000) {
    epoll_event event{};
    return epoll_wait(epoll_.get(), &event, 1, milliseconds) > 0 ? event.events : 0;
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
  Fd epoll_{epoll_create1(EPOLL_CLOEXEC)};
};

TEST_F(Epoll, LevelTriggeredAsLongAsBytesAreLeft) {
  add(server_, EPOLLIN);
  send_all(client_, "abc");
  for (int left = 3; left > 0; --left) {
    EXPECT_EQ(wait(), uint32_t{EPOLLIN});
    recv_exactly(server_, 1);
  }
  EXPECT_EQ(wait(0), 0u);
}

TEST_F(Epoll, EdgeTriggeredOncePerArrival) {
  add(server_, EPOLLIN | EPOLLET);
  for (int time = 0; time < 3; ++time) {
    send_all(client_, "abc");
    EXPECT_EQ(wait(), uint32_t{EPOLLIN});
    EXPECT_EQ(wait(0), 0u);
  }
  EXPECT_EQ(recv_exactly(server_, 9), "abcabcabc");
}

TEST_F(Epoll, EdgeTriggeredAddSeesWhatIsThere) {
  send_all(client_, pattern(1000));
  await_queued(server_, 1000);
  recv_exactly(server_, 500);
  add(server_, EPOLLIN | EPOLLOUT | EPOLLET);
  EXPECT_EQ(wait(0), uint32_t{EPOLLIN | EPOLLOUT});
}

// What has been read must not be reported again, whoever asks, and beside what else is reported.
TEST_F(Epoll, NotReadableForWhatHasBeenRead) {
  expect_alive(client_, server_);
  expect_alive(server_, client_);
  const auto wait_with_room = [this](int milliseconds) {
    std::array<epoll_event, 8> events{};
    return epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds) > 0
               ? events[0].events
               : 0;
  };
  make_nonblocking(client_);
  add(client_, EPOLLIN);
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(control(EPOLL_CTL_MOD, client_, EPOLLIN), 0);
    EXPECT_EQ(wait_with_room(0), 0u);
    send_all(server_, "abc");
    EXPECT_EQ(wait_with_room(3000), uint32_t{EPOLLIN});
    EXPECT_EQ(recv_exactly(client_, 3), "abc");
    ASSERT_EQ(control(EPOLL_CTL_MOD, client_, EPOLLIN | EPOLLOUT), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(wait_with_room(3000), uint32_t{EPOLLOUT}) << round;
    send_all(server_, "abc");
    await_queued(client_, 3);
    EXPECT_EQ(wait_with_room(3000), uint32_t{EPOLLIN | EPOLLOUT});
    EXPECT_EQ(recv_exactly(client_, 3), "abc");
    pollfd one{client_, POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, 0), 0) << round;
  }
}

// An HTTP load generator's loop: readability is believed, and EAGAIN counted as an error.
TEST_F(Epoll, ReadableMeansThatBytesCanBeRead) {
  constexpr int kRounds = 5000;
  static constexpr std::string_view kHead = "head ", kBody = "body";
  std::thread server([this] {
    const auto set_cork = [this](int value) {
      return setsockopt(server_, IPPROTO_TCP, TCP_CORK, &value, sizeof value);
    };
    char request[16];
    while (recv(server_, request, sizeof request, 0) > 0) {
      EXPECT_EQ(set_cork(1), 0);
      send_all(server_, kHead);
      send_all(server_, kBody);
      EXPECT_EQ(set_cork(0), 0);
    }
  });
  make_nonblocking(client_);
  add(client_, EPOLLIN | EPOLLOUT);
  int reports_for_nothing = 0;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    ASSERT_EQ(control(EPOLL_CTL_MOD, client_, EPOLLIN | EPOLLOUT), 0);
    bool has_sent = false;
    for (size_t got = 0; got < kHead.size() + kBody.size();) {
      const uint32_t events = wait();
      ASSERT_NE(events, 0u) << round;
      if ((events & EPOLLIN) != 0) {
        char answer[64];
        const ssize_t n = recv(client_, answer, sizeof answer, 0);
        if (n < 0 && errno == EAGAIN) ++reports_for_nothing;
        if (n > 0) got += static_cast<size_t>(n);
      }
      if ((events & EPOLLOUT) == 0 || has_sent) continue;
      send_all(client_, "request");
      has_sent = true;
      ASSERT_EQ(control(EPOLL_CTL_MOD, client_, EPOLLIN), 0);
    }
  }
  EXPECT_EQ(reports_for_nothing, 0);
  shutdown(client_, SHUT_WR);
  server.join();
}

TEST_F(Epoll, OneshotOncePerArming) {
  add(server_, EPOLLIN | EPOLLONESHOT);
  send_all(client_, "ab");
  EXPECT_EQ(wait(), uint32_t{EPOLLIN});
  EXPECT_EQ(wait(0), 0u);
  recv_exactly(server_, 1);
  ASSERT_EQ(control(EPOLL_CTL_MOD, server_, EPOLLIN | EPOLLONESHOT), 0);
  EXPECT_EQ(wait(0), uint32_t{EPOLLIN});
}

TEST_F(Epoll, DataComesBackAsGiven) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, server_, EPOLLOUT, 0x0123456789abcdef), 0);
  epoll_event event{};
  ASSERT_EQ(epoll_wait(epoll_.get(), &event, 1, 0), 1);
  EXPECT_EQ(event.data.u64, 0x0123456789abcdefu);
}

TEST_F(Epoll, EndAndHangup) {
  add(server_, EPOLLIN | EPOLLRDHUP);
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(wait(), uint32_t{EPOLLIN | EPOLLRDHUP});
  EXPECT_EQ(shutdown(server_, SHUT_WR), 0);
  EXPECT_EQ(wait(), uint32_t{EPOLLIN | EPOLLRDHUP | EPOLLHUP});
}

TEST_F(Epoll, SetsAreChangedAsAsked) {
  expect_control_fails(EPOLL_CTL_MOD, server_, ENOENT);
  expect_control_fails(EPOLL_CTL_DEL, server_, ENOENT);
  add(server_, 0);
  expect_control_fails(EPOLL_CTL_ADD, server_, EEXIST);
  send_all(client_, "x");
  await_queued(server_, 1);
  EXPECT_EQ(wait(0), 0u);
  ASSERT_EQ(control(EPOLL_CTL_MOD, server_, EPOLLIN), 0);
  EXPECT_EQ(wait(0), uint32_t{EPOLLIN});
  EXPECT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, server_, nullptr), 0);
  EXPECT_EQ(wait(0), 0u);
  expect_control_fails(EPOLL_CTL_ADD, closed_number(), EBADF);
  expect_control_fails(EPOLL_CTL_ADD, epoll_.get(), EINVAL);
  expect_control_fails(99, server_, EINVAL);
}

TEST_F(Epoll, CloseTakesTheSocketOut) {
  add(server_, EPOLLIN);
  send_all(client_, "x");
  EXPECT_EQ(wait(), uint32_t{EPOLLIN});
  pair_.server.close();
  EXPECT_EQ(wait(0), 0u);
}

TEST_F(Epoll, ADuplicateKeepsTheSocketIn) {
  add(server_, EPOLLIN);
  const Fd copy(dup(server_));
  pair_.server.close();
  send_all(client_, "x");
  EXPECT_EQ(wait(), uint32_t{EPOLLIN});
  EXPECT_EQ(recv_exactly(copy.get(), 1), "x");
  EXPECT_EQ(wait(0), 0u);
}

TEST_F(Epoll, ConnectingSocketBecomesWritable) {
  const Listener listener = listen_loopback();
  const Fd client = make_client_socket(SOCK_NONBLOCK);
  add(client.get(), EPOLLOUT | EPOLLIN | EPOLLET);
  wait(0);  // an unconnected socket reports a hang-up
  connect_to(client.get(), listener.address);
  EXPECT_EQ(wait(), uint32_t{EPOLLOUT});
  EXPECT_EQ(get_option(client.get(), SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(send(client.get(), "first words", 11, 0), 11);
  const Fd server = accept_one(listener.fd.get());
  EXPECT_EQ(recv_exactly(server.get(), 11), "first words");
}

TEST_F(Epoll, NestedSets) {
  const Fd outer(epoll_create(1));
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(outer.get(), EPOLL_CTL_ADD, epoll_.get(), &event), 0);
  add(server_, EPOLLIN);
  EXPECT_EQ(epoll_wait(outer.get(), &event, 1, 0), 0);
  send_all(client_, "x");
  EXPECT_EQ(epoll_wait(outer.get(), &event, 1, 3000), 1);
  recv_exactly(server_, 1);
  EXPECT_EQ(epoll_wait(outer.get(), &event, 1, 0), 0);
}

class EpollForWriting : public Epoll, public testing::WithParamInterface<uint32_t> {};

TEST_P(EpollForWriting, ThenABlockingSendNeverWaitsForGood) {
  add(client_, GetParam());
  for (int i = 0; i < 3; ++i) expect_alive(client_, server_);
  const std::string piece = pattern(16'384);
  set_timeout(client_, SO_SNDTIMEO, 3000);
  size_t pieces = 0;
  for (; wait(0) == EPOLLOUT; ++pieces) {
    ASSERT_LT(pieces, 10'000u);
    ASSERT_EQ(send(client_, piece.data(), piece.size(), 0), ssize_t(piece.size()));
  }
  std::jthread reader([&, pieces] {
    for (size_t i = 0; i < pieces; ++i)
      ASSERT_TRUE(is_same(recv_exactly(server_, piece.size()), piece));
  });
  EXPECT_GT(pieces, 0u);
  EXPECT_EQ(wait(), uint32_t{EPOLLOUT});
  reader.join();
  send_all(client_, piece);
  EXPECT_TRUE(is_same(recv_exactly(server_, piece.size()), piece));
}

INSTANTIATE_TEST_SUITE_P(Events, EpollForWriting,
                         testing::Values(EPOLLOUT, EPOLLIN | EPOLLOUT, EPOLLOUT | EPOLLRDHUP));

TEST_F(Epoll, BadArguments) {
  epoll_event event{};
  EXPECT_EQ(epoll_wait(epoll_.get(), &event, 0, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(epoll_wait(server_, &event, 1, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(epoll_wait(closed_number(), &event, 1, 0), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(epoll_create(0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Epoll, AWaitInAnotherThreadSeesALaterAdd) {
  std::jthread adder([&] {
    sleep_ms(30);
    send_all(client_, "x");
    control(EPOLL_CTL_ADD, server_, EPOLLIN);
  });
  EXPECT_EQ(wait(), uint32_t{EPOLLIN});
}

// Servers take what FIONREAD tells as all there is, and then wait for an edge (nginx does).
TEST_F(Epoll, AnEdgeFollowsForWhatFionreadHasNotTold) {
  constexpr size_t kBytes = 64 << 20;
  std::thread writer([this] {
    const std::string piece = pattern(8192);
    for (size_t sent = 0; sent < kBytes; sent += piece.size()) send_all(client_, piece);
  });
  make_nonblocking(server_);
  add(server_, EPOLLIN | EPOLLET);
  std::string buffer(1 << 20, '\0');
  size_t got = 0;
  while (got < kBytes) {
    if (wait(5000) == 0) break;
    int told = 0;
    while (ioctl(server_, FIONREAD, &told) == 0 && told > 0) {
      const ssize_t n =
          recv(server_, buffer.data(), std::min<size_t>(buffer.size(), size_t(told)), 0);
      if (n <= 0) break;
      got += size_t(n);
    }
  }
  EXPECT_EQ(got, kBytes) << "no edge came";
  if (got < kBytes) shutdown(server_, SHUT_RDWR);
  writer.join();
}

// nginx asks once, behind a read that was filled, and counts down from the answer; at 0 it waits
// for an edge.
TEST_F(Epoll, AnEdgeFollowsForWhoCountsDown) {
  constexpr size_t kBytes = 8 << 20;
  set_option(server_, SOL_SOCKET, SO_RCVBUF, 65'536);
  std::thread writer([this] {
    const std::string piece = pattern(65'536);
    for (size_t sent = 0; sent < kBytes; sent += piece.size()) send_all(client_, piece);
  });
  make_nonblocking(server_);
  add(server_, EPOLLIN | EPOLLET);
  std::string buffer(16'384, '\0');
  size_t got = 0;
  while (got < kBytes && wait(3000) != 0) {
    for (int available = -1; available != 0;) {
      const ssize_t n = recv(server_, buffer.data(), buffer.size(), 0);
      if (n <= 0) break;
      got += size_t(n);
      if (available >= 0) {
        available = std::max(0, available - int(n));
      } else if (size_t(n) == buffer.size()) {
        ASSERT_EQ(ioctl(server_, FIONREAD, &available), 0);
      }
      if (size_t(n) < buffer.size()) break;
      sleep_ms(got % 3 == 0 ? 1 : 0);
    }
  }
  EXPECT_EQ(got, kBytes) << "no edge came";
  if (got < kBytes) shutdown(server_, SHUT_RDWR);
  writer.join();
}

// The rest of a long message is taken a byte at a time, while what follows it keeps coming.
TEST_F(Epoll, SmallReadsOfALongMessageBesideManyShortOnes) {
  constexpr int kShort = 200, kRest = 1400;
  expect_alive(client_, server_);
  expect_alive(server_, client_);
  make_nonblocking(client_);
  const std::string bytes = pattern(16 << 20);
  std::string got;
  size_t sent = 0;
  for (ssize_t n; (n = send(client_, bytes.data() + sent, 60'000, 0)) > 0;) sent += size_t(n);
  got = recv_exactly(server_, sent - kRest);
  for (int i = 0; i < kShort; ++i) {
    if (send(client_, bytes.data() + sent, 1, 0) == 1) ++sent;
    got += recv_exactly(server_, 1);
  }
  got += recv_exactly(server_, sent - got.size());
  EXPECT_TRUE(is_same(got, bytes.substr(0, sent)));
}

// An edge-triggered echo server with many clients, in one thread, and clients in another.
class EchoServer {
 public:
  explicit EchoServer(size_t clients) : clients_(clients) { watch(listener_.fd.get(), EPOLLIN); }
  const sockaddr_in& address() const { return listener_.address; }
  void run() {
    while (clients_ > 0) {
      epoll_event events[16];
      const int count = epoll_wait(epoll_.get(), events, 16, 5000);
      ASSERT_GT(count, 0) << clients_ << " clients not served";
      for (int at = 0; at < count; ++at) serve(events[at].data.fd);
    }
  }

 private:
  void watch(int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    EXPECT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), 0);
  }
  void serve(int fd) {
    if (fd != listener_.fd.get()) return echo(fd);
    Fd client = accept_one(fd);
    make_nonblocking(client.get());
    watch(client.get(), EPOLLIN | EPOLLOUT | EPOLLET);
    const int number = client.get();
    held_[number] = {std::move(client), {}};
    echo(number);
  }
  void echo(int fd) {
    auto& [socket, unsent] = held_[fd];
    char buffer[5000];
    for (;;) {
      const ssize_t sent = send(fd, unsent.data(), unsent.size(), 0);
      if (sent > 0) unsent.erase(0, size_t(sent));
      if (!unsent.empty()) return;
      const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      if (got < 0) return;
      if (got == 0) {
        held_.erase(fd);
        --clients_;
        return;
      }
      unsent.assign(buffer, size_t(got));
    }
  }

  struct Held {
    Fd socket;
    std::string unsent;
  };
  size_t clients_;
  Listener listener_ = listen_loopback();
  Fd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  std::map<int, Held> held_;
};

TEST_F(Epoll, EdgeTriggeredEchoServerOfManyClients) {
  constexpr size_t kClients = 8;
  EchoServer server(kClients);
  std::vector<std::jthread> clients;
  for (uint32_t number = 0; number < kClients; ++number)
    clients.emplace_back([&, number] {
      const std::string bytes = pattern(500'000, number);
      const Fd fd = dial(server.address());
      std::jthread sender([&] {
        send_all(fd.get(), bytes);
        shutdown(fd.get(), SHUT_WR);
      });
      EXPECT_TRUE(is_same(recv_to_end(fd.get()), bytes));
    });
  server.run();
}

}  // namespace
}  // namespace ddpsock::shim_tests
