// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/brief_use.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/invariant.h"

namespace ddpsock::shim {
namespace {

// No descriptor of this number is open: the table does not care.
constexpr int kFd = 900;

class FakeHandle : public message::Handle {
 public:
  void close() override {}
  void destroy() override { ++destroyed; }
  std::atomic<int> destroyed{0};
};

class Brief : public testing::Test {
 protected:
  Brief() {
    allow_brief_uses();
    enter();
  }
  ~Brief() override {
    if (is_ours(kFd)) drop_fd(kFd);
  }
  void enter() {
    Socket* socket = enter_fd(kFd);
    socket->message.store(&handle);
    socket->phase.store(Phase::kMessage);
  }
  static Duration time_of_drop() {
    const Time start = base::now();
    drop_fd(kFd);
    return base::now() - start;
  }
  FakeHandle handle;
};

// A thread that is inside one until it is told to leave.
class Inside {
 public:
  Inside() {
    while (!is_inside_) std::this_thread::yield();
  }
  ~Inside() { leave(); }
  void leave() {
    may_leave_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> is_inside_{false}, may_leave_{false};
  std::thread thread_{[this] {
    const BriefUse use(kFd);
    EXPECT_TRUE(use);
    is_inside_ = true;
    while (!may_leave_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }};
};

TEST_F(Brief, HasWhatTheNumberStandsFor) {
  {
    const BriefUse use(kFd);
    ASSERT_TRUE(use);
    EXPECT_EQ(use.operator->(), &handle);
    const BriefUse inner(kFd);
    EXPECT_FALSE(inner) << "a signal handler's";
    const BriefUse other(kFd + 1);
    EXPECT_FALSE(other);
  }
  EXPECT_TRUE(BriefUse(kFd)) << "the one before is over";
  socket_at(kFd)->phase.store(Phase::kStream);
  EXPECT_FALSE(BriefUse(kFd));
  socket_at(kFd)->phase.store(Phase::kMessage);
  drop_fd(kFd);
  EXPECT_EQ(handle.destroyed, 1);
  EXPECT_FALSE(BriefUse(kFd));
}

TEST_F(Brief, IsWaitedFor) {
  std::atomic<bool> is_inside{false};
  std::thread user([&] {
    const BriefUse use(kFd);
    EXPECT_TRUE(use);
    is_inside = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(handle.destroyed, 0);
  });
  while (!is_inside) std::this_thread::yield();
  drop_fd(kFd);
  EXPECT_EQ(handle.destroyed, 1);
  user.join();
}

// Not for ever; what it has goes with a later one.
TEST_F(Brief, ThatLastsIsWaitedForLater) {
  Inside user;
  drop_fd(kFd);
  EXPECT_EQ(handle.destroyed, 0);
  FakeHandle& first = handle;
  user.leave();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  FakeHandle other;
  Socket* socket = enter_fd(kFd);
  socket->message.store(&other);
  socket->phase.store(Phase::kMessage);
  drop_fd(kFd);
  EXPECT_EQ(other.destroyed, 1);
  EXPECT_EQ(first.destroyed, 1);
}

// By a signal handler, or by what a call has called.
TEST_F(Brief, OfTheClosingThreadItselfIsNotWaitedFor) {
  {
    const BriefUse use(kFd);
    EXPECT_LT(time_of_drop(), Duration::from_ms(80));
    EXPECT_EQ(handle.destroyed, 0);
  }
}

sigjmp_buf back;
[[gnu::noinline]] void jump_out() {
  const BriefUse use(kFd);
  EXPECT_TRUE(use);
  siglongjmp(back, 1);
}

TEST_F(Brief, IsOverByAJump) {
#ifdef DDPSOCK_CHECKS_INVARIANTS  // in builds with sanitizers
  GTEST_SKIP() << "their own siglongjmp calls nothing of ours";
#endif
  if (sigsetjmp(back, 1) == 0) jump_out();
  EXPECT_EQ(BriefUse::frame_of_thread(), nullptr);
  drop_fd(kFd);
  EXPECT_EQ(handle.destroyed, 1);
}

// Threads that a forked child has not are not waited for there.
TEST_F(Brief, OfAParentsThreadIsNobodysInAChild) {
  Inside user;
  const pid_t child = fork();
  if (child == 0) _exit(time_of_drop() < Duration::from_ms(50) ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// There are marks for 256; those of threads that have ended are had again.
TEST_F(Brief, ManyThreads) {
  std::atomic<int> empty{0};
  for (int i = 0; i < 600; ++i) std::thread([&] { empty += BriefUse(kFd) ? 0 : 1; }).join();
  EXPECT_EQ(empty, 0);
  std::atomic<int> there{0};
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 300; ++i) {
    threads.emplace_back([&] {
      empty += BriefUse(kFd) ? 0 : 1;
      ++there;
      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  while (there < 300) std::this_thread::yield();
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(empty, 300 - 256);
  EXPECT_LT(empty, 100);
}

}  // namespace
}  // namespace ddpsock::shim
