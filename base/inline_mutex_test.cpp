// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/inline_mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace ddpsock::base {
namespace {

TEST(InlineMutex, IsForOneAtATime) {
  constexpr int kThreads = 4, kRounds = 50'000;
  InlineMutex mutex;
  long taken = 0, tried = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        {
          const std::lock_guard held(mutex);
          ++taken;
        }
        if (const std::unique_lock attempt(mutex, std::try_to_lock); attempt) ++tried;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, long{kThreads} * kRounds);
  EXPECT_GT(tried, 0);
  EXPECT_TRUE(mutex.try_lock()) << "nobody has it";
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
}

// A thread asleep on it wakes, whoever else comes meanwhile.
TEST(InlineMutex, WhoSleepsIsWoken) {
  InlineMutex mutex;
  for (int round = 0; round < 200; ++round) {
    mutex.lock();
    std::thread first([&] { const std::lock_guard held(mutex); });
    std::thread second([&] { const std::lock_guard held(mutex); });
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    mutex.unlock();
    first.join();
    second.join();
  }
}

}  // namespace
}  // namespace ddpsock::base
