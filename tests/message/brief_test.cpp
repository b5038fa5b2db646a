// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Posts and polls that are over at once, beside whatever takes their descriptor away.
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

class Brief : public testing::Test {
 protected:
  Brief() { arm_alarm(); }
};

void poll_once(int fd) {
  ddp_completion done;
  ddp_poll(fd, &done, 1);
}

void talk(const Ends& ends, int rounds) {
  std::string room(8, '\0');
  for (int i = 0; i < rounds; ++i) {
    post_recv(ends.server.get(), room);
    post_send(ends.client.get(), "12345678", 0, DDP_SILENT);
    EXPECT_EQ(next(ends.server.get(), DDP_RECEIVED).bytes, 8u);
  }
}

// Numbers are given away and got back while others are in calls on them.
TEST_F(Brief, ClosingBesideCallsOfOtherThreads) {
  std::atomic<int> fd{-1};
  std::atomic<bool> is_over{false};
  std::atomic<uint64_t> calls{0};
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      std::string room(8, '\0');
      const iovec part = part_of(room);
      const ddp_recv_work receive = recv_work(part);
      const ddp_send_work send = send_work(part, 0, DDP_SILENT);
      while (!is_over) {
        ++inside;
        if (const int number = fd; number >= 0) {
          poll_once(number);
          if (i == 1) ddp_post_recv(number, &receive, 1);
          if (i == 2) ddp_post_send(number, &send, 1);
          ++calls;
        }
        --inside;
      }
    });
  }
  for (int round = 0; round < 60; ++round) {
    Ends ends = connect_ends();
    talk(ends, 20);
    fd = ends.client.get();
    const uint64_t before = calls;
    while (calls < before + 20) std::this_thread::yield();
    ends.client.close();
    // Before the number is another connection's.
    fd = -1;
    while (inside != 0) std::this_thread::yield();
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
}

// More threads one after the other, and at the same time, than there are marks for.
TEST_F(Brief, MoreThreadsThanMarks) {
  const Ends ends = connect_ends();
  talk(ends, 20);
  for (int i = 0; i < 400; ++i) std::thread([&] { poll_once(ends.server.get()); }).join();
  std::atomic<int> there{0};
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 300; ++i) {
    threads.emplace_back([&] {
      poll_once(ends.server.get());
      ++there;
      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      poll_once(ends.server.get());
    });
  }
  while (there < 300) std::this_thread::yield();
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  talk(ends, 20);
}

// The child's copy of the connection is nobody's; its own connections work.
TEST_F(Brief, AChildHasItsOwn) {
  const Ends ends = connect_ends();
  talk(ends, 20);
  const pid_t child = fork();
  if (child == 0) {
    ddp_completion done;
    const bool is_refused = ddp_poll(ends.server.get(), &done, 1) == -1 && errno == EOPNOTSUPP;
    Ends own = connect_ends();
    talk(own, 20);
    own.client.close();
    own.server.close();
    _exit(is_refused && !testing::Test::HasFailure() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  talk(ends, 20);
}

}  // namespace
}  // namespace ddpsock::message_tests
