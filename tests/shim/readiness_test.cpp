// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The descriptor tells the truth: while no library call runs, the kernel's own pollers (raw system
// calls, nested, in another process) say readable exactly if the program would get something.
//   I1  undelivered payload means a readable descriptor
//   I2  nothing undelivered means an unreadable one
//   I3  recv returns short only when nothing more was queued
//   I4  after EAGAIN, or a short count, the next change gives an edge
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "kernel.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class Readiness : public TcpTest {
 protected:
  // Start-up frames, if there are any, are behind both ends when the first bytes have passed.
  Readiness() {
    expect_alive(client_, server_);
    set_option(client_, IPPROTO_TCP, TCP_NODELAY, 1);
    make_nonblocking(client_);
    make_nonblocking(server_);
  }

  void send_next(size_t count) {
    const std::string bytes = pattern(count, ++pieces_);
    ASSERT_EQ(send(client_, bytes.data(), count, 0), ssize_t(count)) << strerror(errno);
    expected_ += bytes;
  }

  // One recv, checked against what was sent. Returns the count, 0 for EAGAIN.
  size_t receive(size_t room) {
    std::string buffer(room, '\0');
    const ssize_t got = recv(server_, buffer.data(), room, 0);
    EXPECT_TRUE(got >= 0 || errno == EAGAIN) << strerror(errno);
    if (got <= 0) return 0;
    const auto count = static_cast<size_t>(got);
    EXPECT_TRUE(is_same(buffer.substr(0, count), expected_.substr(0, count)));
    expected_.erase(0, count);
    return count;
  }

  void expect_readable_is(bool is_due) const {
    if (is_due) {
      EXPECT_TRUE(kernel_poll(server_, POLLIN, kSoon) & POLLIN)
          << expected_.size() << " undelivered";
    } else {
      EXPECT_EQ(kernel_poll(server_, POLLIN, 0), 0);
    }
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get();
  const int server_ = pair_.server.get();
  std::string expected_;  // sent and not yet received
  uint32_t pieces_ = 0;
};

constexpr size_t kMostQueued = 60'000;  // fits any receive buffer with all its overhead

TEST_F(Readiness, AnIdleSocketIsUnreadableAndWritable) {
  for (const int fd : {client_, server_}) {
    EXPECT_EQ(kernel_poll(fd, POLLIN | POLLRDHUP, 20), 0);
    EXPECT_EQ(kernel_poll(fd, POLLOUT, 0), POLLOUT);
  }
}

TEST_F(Readiness, ReadableUntilTheLastByteOfOneWrite) {
  for (const size_t size : {1u, 2u, 3u, 64u, 1000u, 60'000u}) {
    send_next(size);
    expect_readable_is(true);
    if (size > 1) {
      EXPECT_EQ(receive(size - 1), size - 1);
      expect_readable_is(true);
    }
    EXPECT_EQ(receive(1), 1u);
    expect_readable_is(false);
  }
}

TEST_F(Readiness, ReadableAfterEveryByteOfASmallWrite) {
  send_next(200);
  while (!expected_.empty()) {
    expect_readable_is(true);
    ASSERT_EQ(receive(1), 1u);
  }
  expect_readable_is(false);
}

TEST_F(Readiness, ReadableExactlyWhileBytesAreUndelivered) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    if (random() % 2 == 0 && expected_.size() < kMostQueued / 2) {
      send_next(random_size(random, 1, random() % 4 == 0 ? kMostQueued / 2 : 300));
    } else if (!expected_.empty()) {
      const size_t rooms[] = {1, (expected_.size() + 1) / 2, expected_.size(),
                              random_size(random, 1, expected_.size()), expected_.size() + 100};
      receive(rooms[random() % 5]);
    }
    expect_readable_is(!expected_.empty());
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(Readiness, PeekingChangesNothing) {
  send_next(5000);
  char buffer[6000];
  for (const size_t room : {1u, 2000u, 5000u, 6000u}) {
    EXPECT_EQ(recv(server_, buffer, room, MSG_PEEK), ssize_t(std::min<size_t>(room, 5000)));
    expect_readable_is(true);
  }
  EXPECT_EQ(receive(6000), 5000u);
  EXPECT_EQ(recv(server_, buffer, 1, MSG_PEEK), -1);
  expect_readable_is(false);
}

TEST_F(Readiness, OneReadTakesAllThatIsQueued) {
  std::mt19937 random(12);
  for (int round = 0; round < 100; ++round) {
    while (expected_.size() < kMostQueued / 2) send_next(random_size(random, 1, kMostQueued / 4));
    await_queued(server_, static_cast<int>(expected_.size()));
    const size_t queued = expected_.size();
    ASSERT_EQ(receive(kMostQueued * 2), queued) << "round " << round;
    expect_readable_is(false);
  }
}

TEST_F(Readiness, AShortReadInTheMiddleStillTakesAllTheRest) {
  std::mt19937 random(13);
  for (int round = 0; round < 100; ++round) {
    for (int piece = 0; piece < 5; ++piece) send_next(random_size(random, 1, 8000));
    await_queued(server_, static_cast<int>(expected_.size()));
    const size_t first = random_size(random, 1, expected_.size() - 1);
    ASSERT_EQ(receive(first), first);
    const size_t rest = expected_.size();
    ASSERT_EQ(receive(rest + 1), rest) << "round " << round;
  }
}

TEST_F(Readiness, EdgeAfterAShortRead) {
  KernelEpoll epoll;
  epoll.add(server_, EPOLLIN | EPOLLET);
  std::mt19937 random(14);
  for (int round = 0; round < 500; ++round) {
    send_next(random_size(random, 1, 20'000));
    ASSERT_TRUE(epoll.wait(kSoon) & EPOLLIN) << "round " << round;
    const size_t room = random_size(random, 1, 30'000);
    while (receive(room) == room) continue;
    if (!expected_.empty()) continue;  // the rest was not there yet and brings its own edge
    EXPECT_EQ(epoll.wait(0), 0u);
  }
}

TEST_F(Readiness, EdgeAfterEagain) {
  KernelEpoll epoll;
  epoll.add(server_, EPOLLIN | EPOLLET);
  std::mt19937 random(15);
  for (int round = 0; round < 500; ++round) {
    send_next(random_size(random, 1, 20'000));
    ASSERT_TRUE(epoll.wait(kSoon) & EPOLLIN) << "round " << round;
    const size_t room = random_size(random, 1, 30'000);
    while (receive(room) > 0) continue;
  }
}

TEST_F(Readiness, EveryNewWriteIsAnEdge) {
  KernelEpoll epoll;
  epoll.add(server_, EPOLLIN | EPOLLET);
  for (int round = 0; round < 50; ++round) {
    send_next(100);
    EXPECT_TRUE(epoll.wait(kSoon) & EPOLLIN) << "round " << round;
  }
  EXPECT_EQ(receive(6000), 5000u);
}

// A program that trusts edges alone, against a writer that never pauses in step with it.
TEST_F(Readiness, NoEdgeIsLostWhileDataKeepsComing) {
  constexpr size_t kTotal = 8 * 1024 * 1024;
  const std::string bytes = pattern(kTotal);
  std::jthread writer([&] {
    std::mt19937 random(16);
    for (size_t at = 0; at < kTotal;) {
      const size_t piece = std::min(kTotal - at, random_size(random, 1, 40'000));
      const ssize_t sent = send(client_, bytes.data() + at, piece, 0);
      if (sent > 0) at += static_cast<size_t>(sent);
      if (sent < 0) kernel_poll(client_, POLLOUT, kSoon);
      if (random() % 16 == 0) usleep(200);
    }
  });
  KernelEpoll epoll;
  epoll.add(server_, EPOLLIN | EPOLLET);
  std::mt19937 random(17);
  std::string got, buffer(70'000, '\0');
  while (got.size() < kTotal) {
    ASSERT_TRUE(epoll.wait(kSoon) & EPOLLIN) << "edge lost after " << got.size() << " bytes";
    for (;;) {
      const size_t room = random_size(random, 1, buffer.size());
      const ssize_t count = recv(server_, buffer.data(), room, 0);
      if (count > 0) got.append(buffer, 0, static_cast<size_t>(count));
      if (count < static_cast<ssize_t>(room)) break;
    }
  }
  EXPECT_TRUE(is_same(got, bytes));
}

TEST_F(Readiness, OneshotRearmsOnWhatIsStillUndelivered) {
  KernelEpoll epoll;
  epoll.add(server_, EPOLLIN | EPOLLONESHOT);
  send_next(60'000);
  EXPECT_TRUE(epoll.wait(kSoon) & EPOLLIN);
  for (const size_t room : {1u, 100u, 59'898u}) {
    EXPECT_EQ(receive(room), room);
    EXPECT_EQ(epoll.wait(0), 0u) << "disarmed";
    epoll.modify(server_, EPOLLIN | EPOLLET | EPOLLONESHOT);
    EXPECT_TRUE(epoll.wait(0) & EPOLLIN) << "armed again";
  }
  EXPECT_EQ(receive(1), 1u);
  epoll.modify(server_, EPOLLIN | EPOLLONESHOT);
  EXPECT_EQ(epoll.wait(0), 0u) << "nothing left";
}

TEST_F(Readiness, NestedEpollSeesTheSame) {
  KernelEpoll inner, outer;
  inner.add(server_, EPOLLIN);
  outer.add(inner.get(), EPOLLIN);
  EXPECT_EQ(outer.wait(0), 0u);
  send_next(10'000);
  EXPECT_TRUE(outer.wait(kSoon) & EPOLLIN);
  EXPECT_EQ(receive(9'999), 9'999u);
  EXPECT_TRUE(outer.wait(0) & EPOLLIN);
  EXPECT_EQ(receive(1), 1u);
  EXPECT_EQ(outer.wait(0), 0u);
}

TEST_F(Readiness, AnotherProcessSeesTheSame) {
  KernelEpoll level, edge;
  level.add(server_, EPOLLIN);
  edge.add(server_, EPOLLIN | EPOLLET);
  const KernelWatcher watcher({client_});
  EXPECT_EQ(watcher.wait(level, 0), 0u);
  std::mt19937 random(18);
  for (int round = 0; round < 100; ++round) {
    const size_t size = random_size(random, 2, 30'000);
    send_next(size);
    ASSERT_TRUE(watcher.wait(edge, kSoon) & EPOLLIN) << "round " << round;
    ASSERT_EQ(receive(size / 2), size / 2);
    ASSERT_TRUE(watcher.wait(level, 0) & EPOLLIN) << "round " << round;
    ASSERT_EQ(receive(size), size - size / 2);
    ASSERT_EQ(watcher.wait(level, 0), 0u) << "round " << round;
  }
}

TEST_F(Readiness, ExclusiveWaitersOfTwoProcessesAreWoken) {
  KernelEpoll mine, theirs;
  mine.add(server_, EPOLLIN | EPOLLEXCLUSIVE);
  theirs.add(server_, EPOLLIN | EPOLLEXCLUSIVE);
  const KernelWatcher watcher({client_});
  send_next(1000);
  EXPECT_TRUE((mine.wait(kSoon) | watcher.wait(theirs, 0)) & EPOLLIN);
  EXPECT_EQ(receive(1), 1u);
  EXPECT_TRUE((mine.wait(0) | watcher.wait(theirs, 0)) & EPOLLIN);
  EXPECT_EQ(receive(2000), 999u);
  EXPECT_EQ(mine.wait(0) | watcher.wait(theirs, 0), 0u);
}

TEST_F(Readiness, EndOfStreamShowsBehindUndeliveredBytes) {
  KernelEpoll epoll;
  epoll.add(server_, EPOLLIN | EPOLLRDHUP | EPOLLET);
  send_next(10'000);
  EXPECT_EQ(epoll.wait(kSoon), uint32_t{EPOLLIN});
  EXPECT_EQ(receive(5'000), 5'000u);
  shutdown(client_, SHUT_WR);
  EXPECT_EQ(epoll.wait(kSoon), uint32_t{EPOLLIN | EPOLLRDHUP});
  EXPECT_EQ(receive(20'000), 5'000u);
  EXPECT_EQ(kernel_poll(server_, POLLIN | POLLRDHUP, 0), POLLIN | POLLRDHUP);
  expect_end_of_stream(server_);
  EXPECT_EQ(kernel_poll(server_, POLLIN | POLLRDHUP, 0), POLLIN | POLLRDHUP);
}

TEST_F(Readiness, HangupShowsInAnotherProcess) {
  KernelEpoll epoll;
  epoll.add(server_, EPOLLIN | EPOLLRDHUP);
  const KernelWatcher watcher({client_});
  pair_.client.close();
  EXPECT_EQ(watcher.wait(epoll, kSoon), uint32_t{EPOLLIN | EPOLLRDHUP});
  expect_end_of_stream(server_);
}

TEST_F(Readiness, ResetShows) {
  send_next(100);
  await_queued(server_, 100);
  pair_.server.close();
  // Not at once where another thread is in a call on the socket, or the library's has a duplicate.
  EXPECT_NE(kernel_poll(client_, POLLIN, kSoon), 0);
  EXPECT_EQ(kernel_poll(client_, POLLIN | POLLOUT, 0) & (POLLERR | POLLHUP), POLLERR | POLLHUP);
}

class ReadinessOfWrites : public Readiness, public testing::WithParamInterface<int> {
 protected:
  ReadinessOfWrites() {
    if (GetParam() == 0) return;
    set_option(client_, SOL_SOCKET, SO_SNDBUF, GetParam());
    set_option(server_, SOL_SOCKET, SO_RCVBUF, GetParam());
  }
};

TEST_P(ReadinessOfWrites, EdgeAfterThePeerDrained) {
  if (column() == Column::kOneSided) GTEST_SKIP() << "the peer's thread drains by itself";
  KernelEpoll epoll;
  epoll.add(client_, EPOLLOUT | EPOLLET);
  EXPECT_TRUE(epoll.wait(0) & EPOLLOUT);
  for (uint32_t round = 1; round <= 5; ++round) {
    // Acknowledgements that are still to come, delayed up to 40 ms, make room, which a send finds;
    // in shared memory it does not, if they are the filler's.
    size_t filled = 0, before = 0;
    do {
      before = filled;
      filled = fill_until_refused(client_, round, GetParam() == 0 ? 16'384 : 1'000, before);
      if (!is_in_memory() || before == 0) {
        ASSERT_GT(filled, before) << "round " << round;
      }
    } while (kernel_poll(client_, POLLOUT, 0) || epoll.wait(0));
    size_t drained = 0;
    std::string got;
    while (drained < filled && kernel_poll(server_, POLLIN, kSoon)) {
      char buffer[8192];
      const ssize_t count = recv(server_, buffer, sizeof buffer, 0);
      ASSERT_TRUE(count > 0 || (count < 0 && errno == EAGAIN));
      if (count > 0) got.append(buffer, static_cast<size_t>(count));
      drained = got.size();
    }
    ASSERT_TRUE(is_same(got, pattern(filled, round)));
    ASSERT_TRUE(epoll.wait(kSoon) & EPOLLOUT) << "round " << round;
  }
}

TEST_P(ReadinessOfWrites, WritableMeansASendTakesSomething) {
  std::mt19937 random(19);
  size_t sent_total = 0, got_total = 0;
  const std::string bytes = pattern(4 * 1024 * 1024);
  char buffer[16 * 1024];
  for (int round = 0; round < 400 && sent_total + 50'000 < bytes.size(); ++round) {
    while (kernel_poll(client_, POLLOUT, 0)) {
      const size_t piece = random_size(random, 1, 50'000);
      if (sent_total + piece > bytes.size()) break;
      const ssize_t sent = send(client_, bytes.data() + sent_total, piece, 0);
      ASSERT_GT(sent, 0) << strerror(errno) << " in round " << round;
      sent_total += static_cast<size_t>(sent);
    }
    const ssize_t got = recv(server_, buffer, random_size(random, 1, sizeof buffer), 0);
    if (got < 0) continue;
    ASSERT_EQ(bytes.compare(got_total, size_t(got), buffer, size_t(got)), 0) << round;
    got_total += static_cast<size_t>(got);
  }
}

INSTANTIATE_TEST_SUITE_P(Buffers, ReadinessOfWrites, testing::Values(0, 4608, 16'384),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace ddpsock::shim_tests
