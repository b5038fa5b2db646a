// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who moves the bytes: the calls, the library's thread while the program computes, or only the
// caller; and how one learns of it by poll and epoll.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

class Progress : public testing::Test {
 protected:
  Progress() { arm_alarm(); }
};

ddp_region offer(int fd, void* memory, size_t size) {
  ddp_region region{};
  EXPECT_EQ(
      ddp_reg(fd, memory, size, DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC, &region),
      0);
  return region;
}

// One fetch-add, to its completion.
uint64_t add_one(int fd, const ddp_region& to) {
  ddp_atomic_work work{};
  work.operand = 1;
  work.remote_to = to.to;
  work.remote_stag = to.stag;
  EXPECT_EQ(ddp_post_atomic(fd, &work, 1), 1);
  return next(fd, DDP_ATOMIC_DONE).value;
}

// The server makes no call, whatever it did before.
TEST_F(Progress, OneSidedWhileTheOtherSideComputes) {
  const Ends ends = connect_ends();
  alignas(8) std::atomic<uint64_t> counter{0};
  const ddp_region region = offer(ends.server.get(), &counter, sizeof counter);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(add_one(ends.client.get(), region), i);
  EXPECT_EQ(counter.load(), 100u);
  // After it has been polling, too: the thread takes over.
  ddp_completion completion;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ddp_poll(ends.server.get(), &completion, 1), 0);
  for (uint64_t i = 100; i < 120; ++i) EXPECT_EQ(add_one(ends.client.get(), region), i);
  // And after a wait long enough for the thread to have gone away.
  EXPECT_EQ(ddp_wait(ends.server.get(), &completion, 1, 50), 0);
  for (uint64_t i = 120; i < 140; ++i) EXPECT_EQ(add_one(ends.client.get(), region), i);
}

TEST_F(Progress, ThePeersReadsAreAnsweredWhileThisSideSleepsInItsWait) {
  const Ends ends = connect_ends();
  alignas(8) uint64_t counter = 0;
  const ddp_region region = offer(ends.server.get(), &counter, sizeof counter);
  std::atomic<bool> is_over{false};
  std::jthread waiting([&] {
    ddp_completion completion;
    while (!is_over) EXPECT_EQ(ddp_wait(ends.server.get(), &completion, 1, 20), 0);
  });
  for (uint64_t i = 0; i < 300; ++i) EXPECT_EQ(add_one(ends.client.get(), region), i);
  is_over = true;
}

TEST_F(Progress, CallerDrivenMovesOnlyInCalls) {
  const Listener listener = listen_on_loopback();
  ASSERT_EQ(set_option(listener.fd.get(), DDP_PROGRESS, DDP_PROGRESS_CALLER), 0);
  const Fd client = make_socket();
  set_mode(client.get());
  std::jthread connecting([&] { EXPECT_EQ(connect_to(client.get(), listener), 0); });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  ASSERT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  connecting.join();
  EXPECT_STREQ(status_of(server.get()).progress, "caller");
  EXPECT_ERRNO(EINVAL, ddp_event_fd(server.get()));
  alignas(8) uint64_t counter = 5;
  const ddp_region region = offer(server.get(), &counter, sizeof counter);
  ddp_atomic_work work{};
  work.operand = 1;
  work.remote_to = region.to;
  work.remote_stag = region.stag;
  ASSERT_EQ(ddp_post_atomic(client.get(), &work, 1), 1);
  expect_nothing(client.get());
  pollfd entry{.fd = server.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&entry, 1, kPatienceMs), 1);
  ddp_completion completion{};
  EXPECT_EQ(ddp_poll(server.get(), &completion, 1), 0);
  EXPECT_EQ(next(client.get(), DDP_ATOMIC_DONE).value, 5u);
}

TEST_F(Progress, EventFdTellsOfEachBatchOnce) {
  const Ends ends = connect_ends();
  const int server = ends.server.get();
  const int events = ddp_event_fd(server);
  ASSERT_GE(events, 0);
  EXPECT_EQ(ddp_event_fd(server), events);
  ddp_completion completion{};
  while (ddp_poll(server, &completion, 1) > 0) continue;
  pollfd entry{.fd = events, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&entry, 1, 20), 0);
  std::array<std::string, 6> rooms;
  for (size_t i = 0; i < rooms.size(); ++i) {
    rooms[i].resize(8);
    post_recv(server, rooms[i], i);
  }
  uint64_t seen = 0;
  for (int round = 0; round < 3; ++round) {
    post_send(ends.client.get(), "a", 0, DDP_SILENT);
    post_send(ends.client.get(), "b", 0, DDP_SILENT);
    const uint64_t wanted = seen + 2;
    while (seen < wanted) {
      ASSERT_EQ(poll(&entry, 1, kPatienceMs), 1);
      while (ddp_poll(server, &completion, 1) == 1) EXPECT_EQ(completion.cookie, seen++);
    }
    EXPECT_EQ(poll(&entry, 1, 20), 0);
  }
}

TEST_F(Progress, EventFdTellsOfTheEnd) {
  Ends ends = connect_ends();
  const int events = ddp_event_fd(ends.server.get());
  ddp_completion completion{};
  while (ddp_poll(ends.server.get(), &completion, 1) > 0) continue;
  ends.client.close();
  pollfd entry{.fd = events, .events = POLLIN, .revents = 0};
  do {
    ASSERT_EQ(poll(&entry, 1, kPatienceMs), 1);
  } while (ddp_poll(ends.server.get(), &completion, 1) == 0);
  EXPECT_EQ(completion.kind, static_cast<uint32_t>(DDP_ENDED));
}

TEST_F(Progress, WhatTcpDoesNotTakeFollowsByItself) {
  const Ends ends = connect_ends();
  const std::string from(20'000'000, 'x');
  std::string to(from.size(), '.');
  post_recv(ends.server.get(), to, 1);
  post_send(ends.client.get(), from, 2);  // and the client makes no call
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 1).bytes, from.size());
  EXPECT_TRUE(to == from);
  EXPECT_EQ(next(ends.client.get(), DDP_SENT, 2).status, 0);
}

TEST_F(Progress, MoreIsSentWithThePostAfterItAtTheLatest) {
  const Ends ends = connect_ends();
  std::string first(8, '.'), second(8, '.');
  post_recv(ends.server.get(), first, 1);
  post_recv(ends.server.get(), second, 2);
  post_send(ends.client.get(), "one", 0, DDP_MORE | DDP_SILENT);
  post_send(ends.client.get(), "two", 0, DDP_SILENT);
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 1).bytes, 3u);
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 2).bytes, 3u);
}

TEST_F(Progress, AProgramThatClosesAllItSeesCanGoOn) {
  {
    const Ends before = connect_ends();
  }
  for (int fd = 3; fd < 1200; ++fd) close(fd);
  const Ends ends = connect_ends();
  alignas(8) std::atomic<uint64_t> counter{0};
  const ddp_region region = offer(ends.server.get(), &counter, sizeof counter);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(add_one(ends.client.get(), region), i);
}

TEST_F(Progress, SpinningWaitsFindWhatComes) {
  const Ends ends = connect_ends();
  const int us = 500;
  ASSERT_EQ(set_option(ends.server.get(), DDP_SPIN_US, us), 0);
  int told = 0;
  socklen_t size = sizeof told;
  ASSERT_EQ(getsockopt(ends.server.get(), SOL_DDP, DDP_SPIN_US, &told, &size), 0);
  EXPECT_EQ(told, us);
  std::string room(8, '.');
  for (uint64_t i = 0; i < 50; ++i) {
    post_recv(ends.server.get(), room, i);
    post_send(ends.client.get(), "x", i);
    EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, i).bytes, 1u);
    EXPECT_EQ(next(ends.client.get(), DDP_SENT, i).status, 0);
  }
}

TEST_F(Progress, ASignalEndsAWait) {
  const Ends ends = connect_ends();
  struct sigaction action{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  const pthread_t self = pthread_self();
  std::atomic<bool> is_over{false};
  std::jthread other([&] {
    while (!is_over) {
      usleep(5000);
      pthread_kill(self, SIGUSR1);
    }
  });
  ddp_completion completion;
  EXPECT_ERRNO(EINTR, ddp_wait(ends.client.get(), &completion, 1, kPatienceMs));
  is_over = true;
}

TEST_F(Progress, ClosingEndsAWaitInAnotherThread) {
  Ends ends = connect_ends();
  const int fd = ends.client.get();
  std::jthread waiting([fd] {
    ddp_completion completion;
    EXPECT_ERRNO(EBADF, ddp_wait(fd, &completion, 1, kPatienceMs));
  });
  usleep(20'000);
  ends.client.close();
}

TEST_F(Progress, AForkedChildHasNoPartInIt) {
  Ends ends = connect_ends();
  const pid_t child = fork();
  if (child == 0) {
    ddp_completion completion;
    ddp_region region;
    const iovec part = part_of("x");
    const ddp_send_work work = send_work(part);
    bool is_right = ddp_poll(ends.client.get(), &completion, 1) == -1 && errno == EOPNOTSUPP;
    is_right = is_right && ddp_post_send(ends.client.get(), &work, 1) == -1 && errno == EOPNOTSUPP;
    is_right = is_right && ddp_reg(ends.server.get(), &region, 8, DDP_REMOTE_READ, &region) == -1;
    ends.client.close();
    ends.server.close();
    // It can have connections of its own.
    const Ends own = connect_ends();
    std::string room(8, '.');
    post_recv(own.server.get(), room, 1);
    post_send(own.client.get(), "child", 2);
    is_right = is_right && next(own.server.get(), DDP_RECEIVED, 1).bytes == 5;
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::string room(8, '.');
  post_recv(ends.server.get(), room, 1);
  post_send(ends.client.get(), "parent", 2);
  EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED, 1).bytes, 6u);
}

TEST_F(Progress, DeregisteringBothEndsOfARead) {
  // Caller-driven, so that the peer's Read stays under way: its answer does not fit into TCP.
  const Listener listener = listen_on_loopback();
  ASSERT_EQ(set_option(listener.fd.get(), DDP_PROGRESS, DDP_PROGRESS_CALLER), 0);
  const Fd client = make_socket();
  set_mode(client.get());
  ASSERT_EQ(set_option(client.get(), DDP_PROGRESS, DDP_PROGRESS_CALLER), 0);
  std::jthread connecting([&] { EXPECT_EQ(connect_to(client.get(), listener), 0); });
  const Fd server(accept(listener.fd.get(), nullptr, nullptr));
  ASSERT_EQ(ddp_establish(server.get(), kPatienceMs), 0);
  connecting.join();
  std::string source(16'000'000, 's'), sink(source.size(), '.');
  const ddp_region theirs = offer(server.get(), source.data(), source.size());
  const ddp_region ours = offer(client.get(), sink.data(), sink.size());
  const ddp_read_work read{.cookie = 1,
                           .address = sink.data(),
                           .length = static_cast<uint32_t>(sink.size()),
                           .stag = ours.stag,
                           .remote_to = theirs.to,
                           .remote_stag = theirs.stag,
                           .flags = 0};
  ASSERT_EQ(ddp_post_read(client.get(), &read, 1), 1);
  // Neither end of it ends the connection or the Read.
  EXPECT_ERRNO(EBUSY, ddp_dereg(client.get(), ours.stag));
  EXPECT_ERRNO(EACCES, ddp_post_read(client.get(), &read, 1));
  pollfd entry{.fd = server.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&entry, 1, kPatienceMs), 1);
  ddp_completion completion{};
  EXPECT_EQ(ddp_poll(server.get(), &completion, 1), 0);
  EXPECT_ERRNO(EBUSY, ddp_dereg(server.get(), theirs.stag));
  std::atomic<bool> is_over{false};
  std::jthread serving([&] {
    ddp_completion c;
    while (!is_over) (void)ddp_poll(server.get(), &c, 1);
  });
  const ddp_completion done = next(client.get(), DDP_READ, 1);
  is_over = true;
  EXPECT_EQ(done.status, 0);
  EXPECT_TRUE(sink == source);
  EXPECT_EQ(ddp_dereg(client.get(), ours.stag), 0);
}

}  // namespace
}  // namespace ddpsock::message_tests
