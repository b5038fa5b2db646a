// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An epoll set that more than one looks at: nested in another, polled, duplicated, passed on,
// shared with a forked process. Whoever asks hears what whoever changed it last has asked for.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "kernel.h"
#include "passing.h"
#include "sleeper.h"
#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

class SetSharing : public TcpTest {
 protected:
  SetSharing() {
    for (int time = 0; time < 3; ++time) {
      expect_alive(pair_.client.get(), server_);
      expect_alive(server_, pair_.client.get());
    }
    make_nonblocking(server_);
  }
  static int control(int set, int operation, int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return epoll_ctl(set, operation, fd, &event);
  }
  static uint32_t wait(int set, int milliseconds) {
    epoll_event event{};
    return epoll_wait(set, &event, 1, milliseconds) > 0 ? event.events : 0;
  }
  // The server has been told of bytes and has read them, as a busy program has all the time.
  void be_busy() {
    send_all(pair_.client.get(), "abc");
    EXPECT_NE(wait(set_.get(), kSoon) & EPOLLIN, 0u);
    EXPECT_EQ(recv_exactly(server_, 3), "abc");
  }

  Pair pair_ = connected_pair();
  const int server_ = pair_.server.get();
  Fd set_{epoll_create1(EPOLL_CLOEXEC)};
};

TEST_F(SetSharing, EachMessageIsAnEdgeOfTheOuterSet) {
  const Fd outer(epoll_create1(EPOLL_CLOEXEC));
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  ASSERT_EQ(control(outer.get(), EPOLL_CTL_ADD, set_.get(), EPOLLIN | EPOLLET), 0);
  wait(outer.get(), 0);
  for (int round = 0; round < 50; ++round) {
    send_all(pair_.client.get(), "abc");
    ASSERT_NE(wait(outer.get(), kSoon), 0u) << round;
    EXPECT_EQ(wait(set_.get(), 0), uint32_t{EPOLLIN}) << round;
    EXPECT_EQ(recv_exactly(server_, 3), "abc");
    if (round % 2 == 0) {
      EXPECT_EQ(wait(set_.get(), 0), 0u) << round;
    }
  }
}

TEST_F(SetSharing, ASetIsReadableForPollersWhenAMemberIs) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    be_busy();
    pollfd one{set_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, 0), 0) << round;
    send_all(pair_.client.get(), "abc");
    EXPECT_EQ(poll(&one, 1, kSoon), 1) << round;
    fd_set readers;
    FD_ZERO(&readers);
    FD_SET(set_.get(), &readers);
    EXPECT_EQ(select(set_.get() + 1, &readers, nullptr, nullptr, nullptr), 1) << round;
    EXPECT_EQ(recv_exactly(server_, 3), "abc");
  }
}

// A thread that goes from one set to another is told of each message there, also where it reads
// with more room than there are bytes, and takes that for the end.
TEST_F(SetSharing, AStreamInTwoSetsIsToldOfInBoth) {
  const Fd other(epoll_create1(EPOLL_CLOEXEC));
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  ASSERT_EQ(control(other.get(), EPOLL_CTL_ADD, server_, EPOLLIN | EPOLLET), 0);
  const auto read_some = [this] {
    std::array<char, 64> room;
    return recv(server_, room.data(), room.size(), 0);
  };
  for (int round = 0; round < 5 && !HasFailure(); ++round) {
    send_all(pair_.client.get(), "abc");
    EXPECT_EQ(wait(set_.get(), kSoon), uint32_t{EPOLLIN}) << round;
    EXPECT_EQ(read_some(), 3);
    wait(other.get(), 10);
    for (int message = 0; message < 3; ++message) {
      std::thread sender([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until this one sleeps
        send_all(pair_.client.get(), "abc");
      });
      EXPECT_EQ(wait(other.get(), kSoon), uint32_t{EPOLLIN}) << round << ", " << message;
      EXPECT_EQ(read_some(), 3);
      sender.join();
    }
  }
}

TEST_F(SetSharing, ADuplicateIsTheSameSet) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  send_all(pair_.client.get(), "x");
  await_queued(server_, 1);
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_DEL, server_, 0), 0);
  const Fd copy(dup(set_.get()));
  EXPECT_EQ(wait(copy.get(), 0), 0u);
  ASSERT_EQ(control(copy.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  EXPECT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(wait(set_.get(), 0), uint32_t{EPOLLIN});
  EXPECT_EQ(wait(copy.get(), 0), uint32_t{EPOLLIN});
  ASSERT_EQ(control(copy.get(), EPOLL_CTL_MOD, server_, EPOLLRDHUP), 0);
  EXPECT_EQ(wait(set_.get(), 0), 0u);
}

// SCM_RIGHTS, here to this process itself.
Fd passed_on(int fd) {
  const UnixPair channel;
  EXPECT_EQ(pass(channel.near.get(), {fd}), 1);
  return std::move(receive_passed(channel.far.get()).at(0));
}

// What was put off of a set that was closed is no longer anybody's wish.
class SetsNumber : public SetSharing {
 protected:
  // The first set knows the server by one mark and the second by another; then its number is free.
  void close_the_first_behind_a_change() {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kFirst}};
    ASSERT_EQ(epoll_ctl(set_.get(), EPOLL_CTL_ADD, server_, &event), 0);
    event.data.u64 = kSecond;
    ASSERT_EQ(epoll_ctl(second_.get(), EPOLL_CTL_ADD, server_, &event), 0);
    be_busy();
    event = {.events = EPOLLIN | EPOLLOUT, .data = {.u64 = kFirst}};
    ASSERT_EQ(epoll_ctl(set_.get(), EPOLL_CTL_MOD, server_, &event), 0);
    number_ = set_.get();
    set_.close();
  }
  void expect_second(int set) {
    send_all(pair_.client.get(), "x");
    epoll_event event{};
    ASSERT_EQ(epoll_wait(set, &event, 1, kSoon), 1);
    const uint64_t data = event.data.u64;  // of a packed structure
    EXPECT_EQ(data, kSecond);
    const uint32_t events = event.events;
    EXPECT_EQ(events, uint32_t{EPOLLIN});
  }

  static constexpr uint64_t kFirst = 1111, kSecond = 2222;
  Fd second_{epoll_create1(EPOLL_CLOEXEC)};
  int number_ = -1;
};

TEST_F(SetsNumber, TakenByADuplicateOfAnother) {
  close_the_first_behind_a_change();
  const Fd copy(fcntl(second_.get(), F_DUPFD_CLOEXEC, number_));
  ASSERT_EQ(copy.get(), number_);
  expect_second(second_.get());
}

TEST_F(SetsNumber, TakenByOneThatIsPassed) {
  const UnixPair channel;
  ASSERT_EQ(pass(channel.near.get(), {second_.get()}), 1);
  close_the_first_behind_a_change();
  const std::vector<Fd> received = receive_passed(channel.far.get());
  ASSERT_EQ(received.size(), 1u);
  ASSERT_EQ(received[0].get(), number_);
  expect_second(second_.get());
}

// The kernel's call goes on with the set that it began with.
TEST_F(SetSharing, ASetWhoseNumberIsTakenFromWhoWaitsInIt) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  const Pair other = connected_pair();
  for (int time = 0; time < 3; ++time) expect_alive(other.client.get(), other.server.get());
  const Fd next(epoll_create1(EPOLL_CLOEXEC));
  epoll_event got{};
  Sleeper waiter([&] { epoll_wait(set_.get(), &got, 1, -1); });
  ASSERT_EQ(dup2(next.get(), set_.get()), set_.get());
  const Fd third(epoll_create1(EPOLL_CLOEXEC));
  ASSERT_EQ(control(third.get(), EPOLL_CTL_ADD, other.server.get(), EPOLLIN), 0);
  send_all(other.client.get(), "not for it");
  send_all(pair_.client.get(), "for it");
  waiter.join();
  EXPECT_EQ(got.data.fd, server_);
  EXPECT_NE(wait(third.get(), kSoon) & EPOLLIN, 0u);
}

TEST_F(SetSharing, ASetThatIsPassedOnIsAsItWasLeft) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  send_all(pair_.client.get(), "x");
  await_queued(server_, 1);
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_DEL, server_, 0), 0);
  const Fd received = passed_on(set_.get());
  EXPECT_EQ(wait(received.get(), 0), 0u);
  ASSERT_EQ(control(received.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  EXPECT_EQ(wait(set_.get(), 0), uint32_t{EPOLLIN});
}

TEST_F(SetSharing, AForkedProcessFindsTheSetAsItWasLeft) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  send_all(pair_.client.get(), "x");
  await_queued(server_, 1);
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_DEL, server_, 0), 0);
  Child child([&] {
    EXPECT_EQ(wait(set_.get(), 0), 0u);
    EXPECT_EQ(control(set_.get(), EPOLL_CTL_MOD, server_, EPOLLIN), -1);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
    EXPECT_EQ(wait(set_.get(), 0), uint32_t{EPOLLIN});
  });
  child.expect_success();
  EXPECT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), -1);
  EXPECT_EQ(errno, EEXIST);
}

// One that nobody announces. What it changes then the kernel hears at once.
TEST_F(SetSharing, AClonedProcessFindsTheSetAsItWasLeftAndPutsNothingOff) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  send_all(pair_.client.get(), "x");
  await_queued(server_, 1);
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_DEL, server_, 0), 0);
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    EXPECT_EQ(wait(set_.get(), 0), 0u);
    EXPECT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
    EXPECT_EQ(wait(set_.get(), 0), uint32_t{EPOLLIN});
    EXPECT_EQ(recv_exactly(server_, 1), "x");
    for (int round = 0; round < 3; ++round) be_busy();
    send_all(pair_.client.get(), "x");
    await_queued(server_, 1);
    EXPECT_EQ(control(set_.get(), EPOLL_CTL_DEL, server_, 0), 0);
    EXPECT_EQ(kernel_poll(set_.get(), POLLIN, 0), 0);
    _exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// What is changed after the fork, too.
TEST_F(SetSharing, AForkedProcessHearsOfChanges) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd in(ends[0]), out(ends[1]);
  Child child([&] {
    char byte;
    EXPECT_EQ(read(in.get(), &byte, 1), 1);
    EXPECT_EQ(wait(set_.get(), 0), 0u);
  });
  be_busy();
  send_all(pair_.client.get(), "x");
  await_queued(server_, 1);
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_MOD, server_, EPOLLRDHUP), 0);
  EXPECT_EQ(write(out.get(), "g", 1), 1);
  child.expect_success();
}

// The child closes its copies; the parent's set still watches.
TEST_F(SetSharing, AForkedProcessThatClosesTakesNothingOut) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_MOD, server_, EPOLLIN | EPOLLRDHUP), 0);
  Child child([&] {
    close(server_);
    close(set_.get());
  });
  child.expect_success();
  for (int round = 0; round < 20; ++round) be_busy();
}

// The child's number is its own, the parent's memory is not.
TEST_F(SetSharing, AVforkChildThatReusesTheNumberChangesNothing) {
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_ADD, server_, EPOLLIN), 0);
  be_busy();
  ASSERT_EQ(control(set_.get(), EPOLL_CTL_MOD, server_, EPOLLOUT), 0);
  const pid_t child = vfork();
  if (child == 0) {
    dup2(STDERR_FILENO, set_.get());
    _exit(0);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(wait(set_.get(), kSoon), uint32_t{EPOLLOUT});
}

}  // namespace
}  // namespace ddpsock::shim_tests
