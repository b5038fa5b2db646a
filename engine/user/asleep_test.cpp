// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who dies asleep in the kernel leaves all in order, who dies at work may not have: the record says
// which. It must not say so of somebody who has been cancelled in his sleep long ago.
#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "base/sys.h"
#include "engine/user/stream_testing.h"

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

}  // namespace
}  // namespace ddpsock::engine
