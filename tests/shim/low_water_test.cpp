// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// SO_RCVLOWAT holds back every poller, until so much is there or an end is behind it.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr int kMark = 100, kNotYet = 30, kSoon = 3000;

struct Poller {
  const char* name;
  bool (*is_readable)(int fd, int set, int milliseconds);
};

void PrintTo(const Poller& poller, std::ostream* out) {
  *out << poller.name;
}

const Poller kPollers[] = {
    {"epoll",
     [](int, int set, int milliseconds) {
       epoll_event event;
       return epoll_wait(set, &event, 1, milliseconds) == 1;
     }},
    {"poll",
     [](int fd, int, int milliseconds) {
       pollfd one{fd, POLLIN, 0};
       return poll(&one, 1, milliseconds) == 1;
     }},
    {"select",
     [](int fd, int, int milliseconds) {
       fd_set reading;
       FD_ZERO(&reading);
       FD_SET(fd, &reading);
       timeval time{milliseconds / 1000, milliseconds % 1000 * 1000};
       return select(fd + 1, &reading, nullptr, nullptr, &time) == 1;
     }},
};

class LowWater : public TcpTest, public testing::WithParamInterface<Poller> {
 protected:
  // The mark is set first: for a socket that is known to have one the set is looked at more
  // closely.
  LowWater() {
    expect_alive(client_, server_);
    set_option(server_, SOL_SOCKET, SO_RCVLOWAT, kMark);
    epoll_event event{EPOLLIN, {.fd = server_}};
    EXPECT_EQ(epoll_ctl(set_.get(), EPOLL_CTL_ADD, server_, &event), 0);
  }
  bool is_readable(int milliseconds) const {
    return GetParam().is_readable(server_, set_.get(), milliseconds);
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get(), server_ = pair_.server.get();
  const Fd set_{epoll_create1(0)};
};
INSTANTIATE_TEST_SUITE_P(Pollers, LowWater, testing::ValuesIn(kPollers),
                         [](const auto& p) { return p.param.name; });

TEST_P(LowWater, HoldsBackUntilSoMuchIsThere) {
  for (int round = 0; round < 3; ++round) {
    send_all(client_, pattern(10));
    await_queued(server_, 10);
    EXPECT_FALSE(is_readable(kNotYet));
    send_all(client_, pattern(kMark - 10));
    EXPECT_TRUE(is_readable(kSoon));
    recv_exactly(server_, kMark / 2);
    EXPECT_FALSE(is_readable(kNotYet)) << "half of it is taken";
    recv_exactly(server_, kMark / 2);
    EXPECT_FALSE(is_readable(0));
  }
}

// The kernel calls the socket readable all the while.
TEST_P(LowWater, HoldsBackWithoutAProcessor) {
  send_all(client_, pattern(10));
  await_queued(server_, 10);
  const auto used = [] {
    rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const long before = used();
  EXPECT_FALSE(is_readable(300));
  EXPECT_LT(used() - before, 50'000);
}

TEST_P(LowWater, YieldsToAnEnd) {
  send_all(client_, pattern(10));
  await_queued(server_, 10);
  EXPECT_FALSE(is_readable(kNotYet));
  EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
  EXPECT_TRUE(is_readable(kSoon));
  EXPECT_EQ(recv_to_end(server_), pattern(10));
}

// What TCP makes of a mark, without the library.
int mark_of_tcp(int mark) {
  const Fd socket = make_raw_client_socket();
  set_option(socket.get(), SOL_SOCKET, SO_RCVLOWAT, mark);
  return get_option(socket.get(), SOL_SOCKET, SO_RCVLOWAT);
}

constexpr int kFarTooHigh = 1 << 30;

// A recv() that sleeps is woken by TCP once as much lies there as the mark says, even if it wants
// less, as the one that takes the last bytes does: where these come after it fell asleep only the
// end wakes it.
void send_to_end(int fd, const std::string& bytes) {
  send_all(fd, bytes);
  EXPECT_EQ(shutdown(fd, SHUT_WR), 0);
}

TEST_P(LowWater, YieldsWhereNoMoreFits) {
  set_option(server_, SOL_SOCKET, SO_RCVLOWAT, kFarTooHigh);
  const std::string bytes = pattern(16 * 1024 * 1024);
  std::jthread sender([&] { send_to_end(client_, bytes); });
  EXPECT_TRUE(is_readable(10'000));
  EXPECT_TRUE(is_same(recv_exactly(server_, bytes.size()), bytes));
}

TEST_P(LowWater, YieldsToASmallBuffer) {
  set_option(server_, SOL_SOCKET, SO_RCVBUF, 20'000);
  set_option(server_, SOL_SOCKET, SO_RCVLOWAT, kFarTooHigh);
  EXPECT_EQ(get_option(server_, SOL_SOCKET, SO_RCVLOWAT), 20'000);
  const std::string bytes = pattern(8 * 1024 * 1024);
  std::jthread sender([&] { send_to_end(client_, bytes); });
  EXPECT_TRUE(is_readable(10'000));
  EXPECT_TRUE(is_same(recv_exactly(server_, bytes.size()), bytes));
}

class LowWaterOfRecv : public TcpTest {
 protected:
  const Pair pair_ = connected_pair();
  const int client_ = pair_.client.get(), server_ = pair_.server.get();
};

TEST_F(LowWaterOfRecv, IsReadBackByRelatives) {
  expect_alive(client_, server_);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_set = setsockopt(server_, SOL_SOCKET, SO_RCVLOWAT, &kMark, sizeof kMark) == 0;
    _exit(is_set ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(get_option(server_, SOL_SOCKET, SO_RCVLOWAT), kMark);
}

TEST_F(LowWaterOfRecv, IsNoHigherThanTcps) {
  expect_alive(client_, server_);
  for (const int mark : {0, 1, 100, 1'000'000, kFarTooHigh, -1}) {
    set_option(server_, SOL_SOCKET, SO_RCVLOWAT, mark);
    EXPECT_EQ(get_option(server_, SOL_SOCKET, SO_RCVLOWAT), mark_of_tcp(mark)) << mark;
  }
  const std::string bytes = pattern(static_cast<size_t>(mark_of_tcp(-1)) + 1000);
  std::atomic<bool> has_returned{false}, is_before_end{false};
  std::jthread sender([&] {
    send_all(client_, bytes);
    for (int i = 0; i < kSoon && !has_returned; ++i) sleep_ms(1);
    is_before_end = has_returned.load();
    shutdown(client_, SHUT_WR);
  });
  std::string room(2 * bytes.size(), 0);
  EXPECT_GT(recv(server_, room.data(), room.size(), 0), 0);
  has_returned = true;
  sender.join();
  // TCP itself may have taken a part, and then the rest is below the mark.
  if (column() == Column::kDdp || column() == Column::kShm) {
    EXPECT_TRUE(is_before_end);
  }
}

TEST_P(LowWater, OfANonblockingSocket) {
  make_nonblocking(server_);
  send_all(client_, pattern(10));
  await_queued(server_, 10);
  EXPECT_FALSE(is_readable(kNotYet));
  send_all(client_, pattern(kMark - 10));
  EXPECT_TRUE(is_readable(kSoon));
}

// A look waits as a taking call does.
TEST_P(LowWater, ALookWaitsForIt) {
  for (int round = 0; round < 3; ++round) {
    send_all(client_, pattern(10));
    std::jthread sender([&] {
      sleep_ms(30);
      send_all(client_, pattern(kMark - 10));
    });
    std::array<char, 2 * kMark> bytes;
    EXPECT_EQ(recv(server_, bytes.data(), bytes.size(), MSG_PEEK), kMark);
    EXPECT_EQ(recv(server_, bytes.data(), 5, MSG_PEEK), 5);
    sender.join();
    recv_exactly(server_, kMark);
  }
}

}  // namespace
}  // namespace ddpsock::shim_tests
