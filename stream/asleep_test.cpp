// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who dies asleep in the kernel leaves all in order, who dies at work may not have: the record says
// which. It must not say so of somebody who has been cancelled in his sleep long ago.
#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/sys.h"
#include "relatives/arena.h"
#include "stream/stream_testing.h"

namespace ddpsock::engine {
namespace {

std::atomic<bool> is_waiting{false};

void* receive(void* end) {
  uint8_t x;
  static_cast<End*>(end)->recv(&x, 1);
  return nullptr;
}

TEST(Asleep, NobodyIsWhoWasCancelled) {
  TcpPair tcp;
  End a{tcp.client, Role::kInitiator};
  End b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  ASSERT_EQ(b.recv(5), pattern(5));
  const auto real = base::sys.recv;
  base::sys.recv = [](int fd, void* to, size_t n, int flags) {
    if ((flags & MSG_DONTWAIT) == 0) is_waiting = true;
    return ::recv(fd, to, n, flags);
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, receive, &b), 0);
  while (!is_waiting) usleep(100);
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  ASSERT_EQ(result, PTHREAD_CANCELED);

  ASSERT_EQ(a.send(pattern(1)).count, 1);
  const pid_t child = fork();
  if (child == 0) {
    base::sys.recv = [](int, void*, size_t, int) -> ssize_t {
      kill(getpid(), SIGKILL);
      return -1;
    };
    uint8_t x;
    b.recv(&x, 1, MSG_DONTWAIT);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  base::sys.recv = real;
  uint8_t x;
  EXPECT_EQ(b.recv(&x, 1, MSG_DONTWAIT).error, ECONNRESET);
}

// Who waited for one that died at work finds out that the number is another's before it ends the
// connection there.
TEST(Asleep, NobodyEndsWhatTheNumberIsAfterADeath) {
  TcpPair tcp, other;
  End a{tcp.client, Role::kInitiator};
  End b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  ASSERT_EQ(b.recv(5), pattern(5));
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  std::array<int, 2> at_work{};
  ASSERT_EQ(pipe(at_work.data()), 0);
  static int tell;
  tell = at_work[1];
  const pid_t child = fork();
  if (child == 0) {
    base::sys.recv = [](int, void*, size_t, int) -> ssize_t {
      if (write(tell, "x", 1) == 1) pause();
      _exit(1);
    };
    uint8_t x;
    b.recv(&x, 1, MSG_DONTWAIT);
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(at_work[0], &byte, 1), 1);
  int error = 0;
  std::thread waiting([&] {
    uint8_t x;
    error = b.recv(&x, 1).error;
  });
  usleep(30'000);
  const int kept = dup(tcp.server);
  ASSERT_EQ(dup2(other.server, tcp.server), tcp.server);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  waiting.join();
  EXPECT_EQ(error, EBADF);
  EXPECT_EQ(send(other.client, "y", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(recv(tcp.server, &byte, 1, 0), 1) << "it was shut down";
  ASSERT_EQ(dup2(kept, tcp.server), tcp.server);
  uint8_t x;
  EXPECT_EQ(b.recv(&x, 1).error, ECONNRESET) << "the next finds what was left";
  for (const int fd : {kept, at_work[0], at_work[1]}) close(fd);
}

// In close() the program has no number any more, and what is to be done for the dead is done.
TEST(Asleep, WhoHasNoNumberLeftInherits) {
  TcpPair tcp;
  End a{tcp.client, Role::kInitiator};
  End b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  ASSERT_EQ(b.recv(5), pattern(5));
  std::array<int, 2> asleep{};
  ASSERT_EQ(pipe(asleep.data()), 0);
  static int tell;
  tell = asleep[1];
  const pid_t child = fork();
  if (child == 0) {
    base::sys.recv = [](int fd, void* to, size_t n, int flags) -> ssize_t {
      if ((flags & MSG_DONTWAIT) != 0) return ::recv(fd, to, n, flags);
      if (write(tell, "x", 1) == 1) pause();
      _exit(1);
    };
    uint8_t x;
    b.recv(&x, 1);
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(asleep[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_EQ(a.send(pattern(1)).count, 1);
  user_stream_engine().set_naming([](int, const Stream&) { return false; });
  uint8_t x = 0;
  const Io io = b.recv(&x, 1, MSG_DONTWAIT);
  user_stream_engine().set_naming(nullptr);
  EXPECT_EQ(io.count, 1) << strerror(io.error);
  for (const int fd : asleep) close(fd);
}

// A signal handler forks while the call sleeps: the child's copy of the call returns to a program
// that goes on, and gives back nothing that is its parent's.
class Forked : public testing::TestWithParam<int> {
 protected:
  // Until the kernel would wait.
  static ssize_t fork_where_it_sleeps(int fd, void* to, size_t n, int flags) {
    if ((flags & MSG_DONTWAIT) != 0 || is_waiting) return ::recv(fd, to, n, flags);
    is_waiting = true;
    const pid_t child = fork();
    if (child != 0) {
      waitpid(child, &child_status, 0);
      is_child_over = true;
      while (!may_go_on) usleep(100);
    }
    errno = EINTR;
    return -1;
  }
  Forked() {
    is_waiting = is_child_over = may_go_on = false;
    child_status = -1;
  }
  ~Forked() override { base::sys.recv = real_; }

  void receive_beside_a_child(End& from, End& to) {
    const pid_t parent = getpid();
    base::sys.recv = fork_where_it_sleeps;
    std::thread sleeper([&] {
      uint8_t x;
      const int error = to.recv(&x, 1, GetParam()).error;
      if (getpid() != parent) _exit(error == EINTR ? 0 : 1);
      EXPECT_TRUE(error == EINTR || error == 0) << "a look may see what has come since";
    });
    while (!is_child_over) usleep(100);
    EXPECT_EQ(child_status, 0);
    EXPECT_EQ(from.send(pattern(5)).count, 5);
    uint8_t x;
    EXPECT_EQ(to.recv(&x, 1, MSG_DONTWAIT).error, EAGAIN) << "it is another call's still";
    may_go_on = true;
    sleeper.join();
    EXPECT_EQ(to.recv(5), pattern(5));
  }

 private:
  static inline std::atomic<bool> is_child_over{false}, may_go_on{false};
  static inline int child_status = -1;
  const decltype(base::sys.recv) real_ = base::sys.recv;
};
INSTANTIATE_TEST_SUITE_P(Calls, Forked, testing::Values(0, MSG_PEEK, MSG_WAITALL));

TEST_P(Forked, TakesNothingOnTheWire) {
  TcpPair tcp;
  End a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  ASSERT_EQ(b.recv(5), pattern(5));
  receive_beside_a_child(a, b);
}

TEST_P(Forked, TakesNothingInMemory) {
  TcpPair tcp;
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a.send(pattern(5)).count, 5);
    ASSERT_EQ(b.recv(5), pattern(5));
  }
  ASSERT_STREQ(b.s->status().engine, "shm");
  receive_beside_a_child(a, b);
}

// What a call has been lent for its bytes is its parent's too: given back twice, it may be another
// stream's by then.
class ForkedWithBlocks : public testing::TestWithParam<size_t> {
 protected:
  ~ForkedWithBlocks() override { restore(); }
  void restore() const { base::sys = real_; }
  static void refuse_all() {
    base::sys.send = [](int, const void*, size_t, int) { return refuse(); };
    base::sys.sendmsg = [](int, const msghdr*, int) { return refuse(); };
    base::sys.poll = fork_where_it_sleeps;
    child_status = -1;
    others = Blocks::kNoBlock;
  }

  static inline int child_status;
  static inline uint32_t others;

 private:
  static ssize_t refuse() {
    errno = EAGAIN;
    return -1;
  }
  static int fork_where_it_sleeps(pollfd* fds, nfds_t n, int timeout) {
    if (n != 0) return ::poll(fds, n, timeout);
    const pid_t child = fork();
    if (child != 0) {
      waitpid(child, &child_status, 0);
      others = Arena::get()->blocks.allocate();
    }
    errno = EINTR;
    return -1;
  }
  const base::SysCalls real_ = base::sys;
};
INSTANTIATE_TEST_SUITE_P(Sizes, ForkedWithBlocks, testing::Values(20'000, 300'000));

TEST_P(ForkedWithBlocks, GivesNoneOfThemBack) {
  TcpPair tcp;
  End a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  ASSERT_EQ(b.recv(5), pattern(5));
  const pid_t parent = getpid();
  refuse_all();
  const int error = a.send(pattern(GetParam())).error;
  if (getpid() != parent) _exit(error == EINTR ? 0 : 1);
  restore();
  EXPECT_EQ(error, EINTR);
  EXPECT_EQ(child_status, 0);
  ASSERT_NE(others, Blocks::kNoBlock);
  Arena& arena = *Arena::get();
  const uint32_t next = arena.blocks.allocate();
  EXPECT_NE(next, others) << "it is in use";
  arena.blocks.free(next);
  arena.blocks.free(others);
}

// Who sleeps dies after that: the record still says that all is in order, and a relative goes on.
class ForkedRelative : public testing::TestWithParam<int> {
 protected:
  static ssize_t wait_for_bytes(int fd, void* to, size_t n, int flags) {
    return (flags & MSG_DONTWAIT) != 0 ? ::recv(fd, to, n, flags) : fork_and_die();
  }
  static int wait_for_time(pollfd* fds, nfds_t n, int timeout) {
    return n != 0 ? ::poll(fds, n, timeout) : fork_and_die();
  }
  static int fork_and_die() {
    const pid_t child = fork();
    if (child != 0) {
      int status = 0;
      waitpid(child, &status, 0);
      kill(getpid(), WIFEXITED(status) && WEXITSTATUS(status) == 0 ? SIGKILL : SIGTERM);
    }
    errno = EINTR;
    return -1;
  }
  static void die_in_recv(End& end, bool has_beginning = false) {
    const pid_t sleeper = fork();
    if (sleeper == 0) {
      if (has_beginning) {
        base::sys.poll = wait_for_time;
      } else {
        base::sys.recv = wait_for_bytes;
      }
      uint8_t x[2];
      _exit(end.recv(x, sizeof x, GetParam()).error == EINTR ? 0 : 1);
    }
    int status = 0;
    waitpid(sleeper, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(WTERMSIG(status), SIGKILL) << "the copy returns with EINTR";
  }
};
INSTANTIATE_TEST_SUITE_P(Calls, ForkedRelative, testing::Values(0, MSG_PEEK, MSG_WAITALL));

TEST_P(ForkedRelative, LeavesTheSleepOnTheWire) {
  TcpPair tcp;
  End a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  ASSERT_EQ(a.send(pattern(5)).count, 5);
  ASSERT_EQ(b.recv(5), pattern(5));
  die_in_recv(b);
  EXPECT_EQ(a.send(pattern(5)).count, 5);
  EXPECT_EQ(b.recv(5), pattern(5));
}

TEST_P(ForkedRelative, LeavesTheSleepInMemory) {
  TcpPair tcp;
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a.send(pattern(5)).count, 5);
    ASSERT_EQ(b.recv(5), pattern(5));
  }
  ASSERT_STREQ(b.s->status().engine, "shm");
  die_in_recv(b);
  EXPECT_EQ(a.send(pattern(5)).count, 5);
  EXPECT_EQ(b.recv(5), pattern(5));
}

TEST_P(ForkedRelative, LeavesTheSleepBeforeTheFirstFrame) {
  TcpPair tcp;
  End a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
  die_in_recv(b);
  EXPECT_EQ(a.send(pattern(5)).count, 5);
  EXPECT_EQ(b.recv(5), pattern(5));
}

// A call that would be restarted: the copy is not.
TEST_P(ForkedRelative, LeavesTheRestOverTheBeginningOfAFrame) {
  TcpPair tcp;
  const timeval forever{};
  setsockopt(tcp.server, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
  End b{tcp.server, Role::kResponder, Peer::kUnknown};
  ASSERT_EQ(::send(tcp.client, "MPA", 3, 0), 3);
  die_in_recv(b, true);
  uint8_t x[3];
  EXPECT_EQ(b.recv(x, sizeof x, MSG_DONTWAIT).error, EPROTOTYPE);
}

}  // namespace
}  // namespace ddpsock::engine
