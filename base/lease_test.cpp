// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/lease.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <thread>
#include <vector>

#include "base/process.h"

namespace ddpsock::base {
namespace {

using Outcome = Lease::Outcome;

struct Shared {
  Lease lease;
  long counter;
};

class LeaseTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(process_init());
    void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    s = new (p) Shared{};
  }
  void TearDown() override { munmap(s, 4096); }
  Shared* s = nullptr;
};

TEST_F(LeaseTest, ExcludesAndKnowsItsHolder) {
  EXPECT_EQ(s->lease.try_acquire(), Outcome::kAcquired);
  EXPECT_EQ(s->lease.try_acquire(), Outcome::kHeldByMe);
  std::thread([&] { EXPECT_EQ(s->lease.try_acquire(), Outcome::kBusy); }).join();
  s->lease.release();
  EXPECT_FALSE(s->lease.is_held());
}

TEST_F(LeaseTest, WaitEndsAtTheDeadline) {
  ASSERT_EQ(s->lease.try_acquire(), Outcome::kAcquired);
  std::thread([&] {
    const Time before = now();
    EXPECT_EQ(s->lease.acquire(before + Duration::from_ms(30)), Outcome::kBusy);
    EXPECT_GE(now() - before, Duration::from_ms(30));
  }).join();
  s->lease.release();
}

TEST_F(LeaseTest, ThreadsAndProcessesCountTogether) {
  constexpr int kRounds = 20'000;
  const auto count = [&] {
    for (int i = 0; i < kRounds; ++i) {
      if (s->lease.acquire(kNever) != Outcome::kAcquired) _exit(3);
      s->counter = s->counter + 1;
      s->lease.release();
    }
  };
  const pid_t child = fork();
  if (child == 0) {
    std::thread t(count);
    count();
    t.join();
    _exit(0);
  }
  std::thread t(count);
  count();
  t.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(s->counter, 4 * kRounds);
  EXPECT_FALSE(s->lease.is_held());
}

TEST_F(LeaseTest, DeathOfTheHolderIsNoticed) {
  const pid_t child = fork();
  if (child == 0) {
    if (s->lease.try_acquire() != Outcome::kAcquired) _exit(1);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(s->lease.try_acquire(), Outcome::kBusy);
  EXPECT_EQ(s->lease.acquire(kNever), Outcome::kInherited);
  s->lease.release();
  EXPECT_EQ(s->lease.try_acquire(), Outcome::kAcquired);
  s->lease.release();
}

TEST(Process, RawForkChangesGenerationAndThreadId) {
  ASSERT_TRUE(process_init());
  const uint32_t generation = process_generation();
  ASSERT_EQ(thread_id(), static_cast<uint32_t>(gettid()));
  const pid_t child = static_cast<pid_t>(syscall(SYS_fork));
  if (child == 0) {
    // A second thread that asks first must not hide the fork from the first.
    uint32_t other = 0;
    std::thread([&] { other = process_generation(); }).join();
    const bool ok = other != generation && process_generation() == other &&
                    thread_id() == static_cast<uint32_t>(gettid());
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(process_generation(), generation);
}

}  // namespace
}  // namespace ddpsock::base
