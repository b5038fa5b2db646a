// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads that are cancelled inside the library leave the connection to the others.
#include <pthread.h>

#include <array>
#include <chrono>
#include <random>
#include <thread>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// As long as a thread may need to fall asleep.
constexpr milliseconds kMoment{30};
constexpr int kRounds = 200;

class Cancellation : public testing::Test {
 protected:
  Cancellation() {
    arm_alarm();
    ends_ = connect_ends();
  }
  int client() const { return ends_.client.get(); }
  int server() const { return ends_.server.get(); }

  Ends ends_;
};

pthread_t start(void* (*run)(void*), void* argument) {
  pthread_t thread{};
  EXPECT_EQ(pthread_create(&thread, nullptr, run, argument), 0);
  return thread;
}

void cancel(pthread_t thread) {
  EXPECT_EQ(pthread_cancel(thread), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

// Whoever sleeps on a connection moves its bytes, so that the library's thread must know that
// nobody does any more.
TEST_F(Cancellation, OfAWaitLeavesTheConnectionToTheLibrarysThread) {
  std::array<uint64_t, 4> memory{11, 22, 33, 44};
  ddp_region there{};
  ASSERT_EQ(ddp_reg(server(), memory.data(), sizeof memory, DDP_REMOTE_READ, &there), 0);
  uint64_t word = 0;
  ddp_region here{};
  ASSERT_EQ(ddp_reg(client(), &word, sizeof word, DDP_LOCAL_WRITE, &here), 0);
  std::string room(8, 0);
  post_recv(server(), room, 1);
  int fd = server();
  auto wait = [](void* argument) -> void* {
    ddp_completion done;
    for (;;) ddp_wait(*static_cast<int*>(argument), &done, 1, -1);
  };
  for (uint64_t round = 1; round <= 3; ++round) {
    const pthread_t thread = start(wait, &fd);
    std::this_thread::sleep_for(kMoment);
    cancel(thread);
    // The server makes no call.
    const ddp_read_work read{.cookie = round,
                             .address = &word,
                             .length = sizeof word,
                             .stag = here.stag,
                             .remote_to = there.to + 8 * round,
                             .remote_stag = there.stag,
                             .flags = 0};
    ASSERT_EQ(ddp_post_read(client(), &read, 1), 1);
    next(client(), DDP_READ, round);
    EXPECT_EQ(word, 11 * (round + 1));
  }
  post_send(client(), "hello", 4);
  EXPECT_EQ(next(server(), DDP_RECEIVED, 1).bytes, 5u);
}

struct Echo {
  int fd = -1;
  std::string room = std::string(8, 0);

  void serve_once() {
    ddp_completion done;
    const int n = ddp_poll(fd, &done, 1);
    if (n == 1 && done.kind == DDP_RECEIVED) {
      post_recv(fd, room);
      post_send(fd, "pong", 0, DDP_SILENT);
    }
  }
  static void* run(void* argument) {
    for (;;) {
      static_cast<Echo*>(argument)->serve_once();
      pthread_testcancel();
    }
  }
};

// The calls themselves are no cancellation points: nothing is lost or done twice, and no lock kept.
TEST_F(Cancellation, ActsBetweenCallsThatDoNotSleep) {
  Echo echo{.fd = server()};
  post_recv(echo.fd, echo.room);
  std::mt19937 random(1);
  std::uniform_int_distribution pause(0, 300);
  for (int round = 0; round < kRounds; ++round) {
    const pthread_t thread = start(Echo::run, &echo);
    std::string room(8, 0);
    post_recv(client(), room, 7);
    post_send(client(), "ping", 0, DDP_SILENT);
    std::this_thread::sleep_for(microseconds(pause(random)));
    cancel(thread);
    ddp_completion done{};
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(kPatienceMs);
    for (int n = 0; n == 0 || done.kind == DDP_ESTABLISHED; n = ddp_poll(client(), &done, 1)) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "round " << round;
      echo.serve_once();
    }
    EXPECT_EQ(done.kind, DDP_RECEIVED);
    EXPECT_EQ(done.cookie, 7u);
    EXPECT_EQ(done.bytes, 4u);
  }
  expect_nothing(client());
}

}  // namespace
}  // namespace ddpsock::message_tests
