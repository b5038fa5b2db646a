// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A path between the two ends that delivers the bytes as it likes: in pieces of any size, and,
// where a test says so, stopping in the middle of what was sent. The two ends cannot know of each
// other here, so in DDPMODE it is a rule that decides.
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "kernel.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Relayed : public TcpTest {
 protected:
  // The client has a thread of its own: it may have to wait for the server before connect returns.
  void connect_through(uint32_t seed, size_t largest_piece) {
    const Listener listener = listen_loopback();
    relay_.emplace(listener.address, seed, largest_piece);
    std::jthread connecting([&] {
      client_ = dial(relay_->address());
      send_all(client_.get(), "first");
      EXPECT_EQ(recv_exactly(client_.get(), 6), "second");
    });
    server_ = accept_one(listener.fd.get());
    EXPECT_EQ(recv_exactly(server_.get(), 5), "first");
    send_all(server_.get(), "second");
  }

  // Receives until EAGAIN.
  std::string drain() const {
    std::string got, buffer(70'000, '\0');
    for (;;) {
      const ssize_t count = recv(server_.get(), buffer.data(), buffer.size(), 0);
      EXPECT_TRUE(count >= 0 || errno == EAGAIN) << strerror(errno);
      if (count <= 0) return got;
      got.append(buffer, 0, size_t(count));
    }
  }

  std::optional<Relay> relay_;
  Fd client_, server_;
};

class RelayedPieces : public Relayed, public testing::WithParamInterface<size_t> {};

TEST_P(RelayedPieces, EverythingArrivesBothWays) {
  const size_t size = GetParam() < 10 ? 20'000 : 150'000;
  const std::string a = pattern(size, 1), b = pattern(size, 2);
  connect_through(31, GetParam());
  std::jthread client([&] {
    std::jthread sender([&] {
      send_all(client_.get(), a);
      shutdown(client_.get(), SHUT_WR);
    });
    EXPECT_TRUE(is_same(recv_to_end(client_.get()), b));
  });
  std::jthread sender([&] {
    send_all(server_.get(), b);
    shutdown(server_.get(), SHUT_WR);
  });
  EXPECT_TRUE(is_same(recv_to_end(server_.get()), a));
}

TEST_P(RelayedPieces, KernelsEdgesAreEnough) {
  const size_t size = GetParam() < 10 ? 20'000 : 150'000;
  const std::string bytes = pattern(size);
  connect_through(32, GetParam());
  make_nonblocking(server_.get());
  KernelEpoll epoll;
  epoll.add(server_.get(), EPOLLIN | EPOLLET);
  std::jthread sender([&] {
    std::mt19937 random(33);
    for (size_t at = 0, piece = 0; at < size; at += piece) {
      piece = std::min(size - at, random_size(random, 1, 9'000));
      send_all(client_.get(), bytes.substr(at, piece));
    }
  });
  std::string got = drain();
  while (got.size() < size) {
    ASSERT_TRUE(epoll.wait(kSoon) & EPOLLIN) << "edge lost after " << got.size() << " bytes";
    got += drain();
  }
  EXPECT_TRUE(is_same(got, bytes));
}

INSTANTIATE_TEST_SUITE_P(LargestPiece, RelayedPieces, testing::Values(1, 7, 100, 3'000),
                         testing::PrintToStringParamName());

TEST_F(Relayed, AStopAnywhereLeavesTheSocketUnreadableAndTheRestGivesAnEdge) {
  connect_through(34, 5'000);
  set_option(client_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  make_nonblocking(server_.get());
  KernelEpoll edge;
  edge.add(server_.get(), EPOLLIN | EPOLLET);
  std::mt19937 random(35);
  for (uint32_t round = 0; round < 60; ++round) {
    const size_t size = random_size(random, 20, round % 3 == 0 ? 6'000 : 300);
    const std::string bytes = pattern(size, round);
    const auto passing = static_cast<int64_t>(random_size(random, 1, size));
    relay_->allow(passing);
    send_all(client_.get(), bytes);
    std::string got;
    // The stopped piece trickles in; then the socket must fall silent, for every kind of poller.
    while (kernel_poll(server_.get(), POLLIN, 10)) got += drain();
    ASSERT_LE(got.size(), static_cast<size_t>(passing));
    pollfd one{server_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, 0), 0);
    while (edge.wait(0)) continue;
    relay_->allow_all();
    while (got.size() < size) {
      ASSERT_TRUE(edge.wait(kSoon) & EPOLLIN) << "round " << round << ", " << got.size() << " of "
                                              << size << " bytes, stopped after " << passing;
      got += drain();
    }
    ASSERT_TRUE(is_same(got, bytes));
  }
}

TEST_F(Relayed, ABlockingReaderTakesWhatIsWholeAndWaitsForTheRest) {
  connect_through(36, 5'000);
  set_option(client_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  const std::string bytes = pattern(2'000);
  send_all(client_.get(), bytes.substr(0, 1'000));
  await_queued(server_.get(), 1'000);
  relay_->allow(500);
  send_all(client_.get(), bytes.substr(1'000));
  sleep_ms(20);  // lets a part of it arrive behind the first half
  char buffer[4'000];
  const ssize_t first = recv(server_.get(), buffer, sizeof buffer, 0);
  ASSERT_GE(first, 1'000) << "what is whole does not wait for what is not";
  ASSERT_LE(first, 1'500);
  set_timeout(server_.get(), SO_RCVTIMEO, 30);
  EXPECT_TRUE(recv(server_.get(), buffer + first, 2'000, MSG_PEEK) > 0 || errno == EAGAIN);
  relay_->allow_all();
  set_timeout(server_.get(), SO_RCVTIMEO, 5'000);
  const auto rest = static_cast<size_t>(2'000 - first);
  EXPECT_TRUE(
      is_same(std::string(buffer, size_t(first)) + recv_exactly(server_.get(), rest), bytes));
}

TEST_F(Relayed, NoPartOfAStoppedMessageIsTouchedInTheBuffer) {
  connect_through(37, 5'000);
  make_nonblocking(server_.get());
  const std::string bytes = pattern(1'000);
  relay_->allow(600);
  send_all(client_.get(), bytes);
  std::string got;
  while (kernel_poll(server_.get(), POLLIN, 30)) {
    std::string buffer(3'000, static_cast<char>(0xa5));
    const ssize_t count = recv(server_.get(), buffer.data(), buffer.size(), 0);
    const size_t taken = count > 0 ? size_t(count) : 0;
    EXPECT_EQ(buffer.find_first_not_of(static_cast<char>(0xa5), taken), std::string::npos);
    got.append(buffer, 0, taken);
  }
  relay_->allow_all();
  while (got.size() < bytes.size() && kernel_poll(server_.get(), POLLIN, kSoon)) got += drain();
  EXPECT_TRUE(is_same(got, bytes));
}

}  // namespace
}  // namespace ddpsock::shim_tests
