// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Members of an epoll set that a program has given the same data: what it does with an event is to
// look at all of them, and each must have its own.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "kernel.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class SharedData : public TcpTest {
 protected:
  SharedData() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader_ = Fd(ends[0]);
    writer_ = Fd(ends[1]);
  }
  void add(int fd, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), 0);
  }
  void expect_reported() const {
    EXPECT_EQ(write(writer_.get(), "x", 1), 1);
    epoll_event event{};
    EXPECT_EQ(epoll_wait(epoll_.get(), &event, 1, kSoon), 1);
    EXPECT_NE(event.events & EPOLLIN, 0u);
  }

  Fd reader_, writer_;
  Fd epoll_{epoll_create1(EPOLL_CLOEXEC)};
};

TEST_F(SharedData, WithAStreamThatIsIdle) {
  const Pair pair = connected_pair();
  add(pair.server.get(), EPOLLIN);
  add(reader_.get(), EPOLLIN);
  expect_reported();
}

TEST_F(SharedData, WithAStreamThatCameLater) {
  const Pair pair = connected_pair();
  add(reader_.get(), EPOLLIN);
  add(pair.server.get(), EPOLLIN);
  expect_reported();
}

TEST_F(SharedData, OfAPipeThatWasWatchedWithOther) {
  const Pair pair = connected_pair();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 1;
  ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, reader_.get(), &event), 0);
  add(pair.server.get(), EPOLLIN);
  event.data.u64 = 0;
  ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, reader_.get(), &event), 0);
  expect_reported();
}

TEST_F(SharedData, OfTwoStreams) {
  const Pair idle = connected_pair(), busy = connected_pair();
  add(idle.server.get(), EPOLLIN);
  add(busy.server.get(), EPOLLIN);
  send_all(busy.client.get(), "abc");
  epoll_event event{};
  EXPECT_EQ(epoll_wait(epoll_.get(), &event, 1, kSoon), 1);
  EXPECT_EQ(recv_exactly(busy.server.get(), 3), "abc");
}

// Each in turn, and where both are in shared memory.
TEST_F(SharedData, OfTwoStreamsThatHaveTalked) {
  const Pair pairs[] = {connected_pair(), connected_pair()};
  for (const Pair& pair : pairs)
    for (int i = 0; i < 3; ++i) expect_alive(pair.client.get(), pair.server.get());
  for (const Pair& pair : pairs) add(pair.server.get(), EPOLLIN | EPOLLET);
  epoll_event event{};
  while (epoll_wait(epoll_.get(), &event, 1, 0) == 1) continue;
  for (int i = 0; i < 10; ++i)
    for (const Pair& pair : pairs) {
      send_all(pair.client.get(), "abc");
      EXPECT_EQ(epoll_wait(epoll_.get(), &event, 1, kSoon), 1) << i;
      EXPECT_EQ(recv_exactly(pair.server.get(), 3), "abc");
    }
}

// The connection is complete when the edge is reported, and has nothing to read.
TEST_F(SharedData, OfAnEdgeBesideAConnectionUnderWay) {
  const Listener listener = listen_loopback();
  const Fd client = make_client_socket(SOCK_NONBLOCK);
  connect_to(client.get(), listener.address);
  add(client.get(), EPOLLIN);
  add(reader_.get(), EPOLLIN | EPOLLET);
  expect_reported();
}

// What the kernel would find first is left to it.
TEST_F(SharedData, AtNoAddress) {
  const Pair pair = connected_pair();
  add(pair.server.get(), EPOLLIN);
  void* nowhere = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nowhere, MAP_FAILED);
  EXPECT_EQ(
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, reader_.get(), static_cast<epoll_event*>(nowhere)),
      -1);
  EXPECT_EQ(errno, EFAULT);
  munmap(nowhere, 4096);
}

}  // namespace
}  // namespace ddpsock::shim_tests
