// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/fd_table.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/process.h"
#include "shim/pollers/epoll_watch.h"
#include "shim/test_parts.h"

namespace ddpsock::shim {
namespace {

// No descriptors of these numbers are open: the table does not care.
constexpr int kFd = 900, kOther = 901;

TEST(FdTable, BoundsAreChecked) {
  for (int fd : {-1, INT32_MIN, static_cast<int>(kMaxFds), INT32_MAX}) {
    EXPECT_FALSE(is_ours(fd));
    EXPECT_EQ(enter_fd(fd), nullptr);
    drop_fd(fd);
    set_hint(fd, Origin::kConnected, "x");
    EXPECT_EQ(hint_of(fd).origin, Origin::kUnknown);
  }
}

TEST(FdTable, EnterShareDrop) {
  Socket* socket = enter_fd(kFd);
  ASSERT_NE(socket, nullptr);
  EXPECT_EQ(socket_at(kFd), socket);
  share_fd(kFd, kOther);
  EXPECT_EQ(socket_at(kOther), socket);
  drop_fd(kFd);
  EXPECT_FALSE(is_ours(kFd));
  EXPECT_TRUE(is_ours(kOther));
  drop_fd(kOther);
  EXPECT_FALSE(is_ours(kOther));
}

TEST(FdTable, EnteringAgainReplaces) {
  Socket* first = enter_fd(kFd);
  first->phase = Phase::kListening;
  Socket* second = enter_fd(kFd);
  EXPECT_NE(first, second);
  EXPECT_EQ(second->phase, Phase::kIdle);
  drop_fd(kFd);
}

TEST(FdTable, AStaleEntryGoesWithoutANumber) {
  for (const bool is_stale : {true, false}) {
    Socket* socket = enter_fd(kFd);
    const auto stream = engine::user_stream_engine().open(kFd, {});
    ASSERT_TRUE(stream);
    socket->stream = *stream;
    is_stale ? drop_stale_fd(kFd) : drop_fd(kFd);
    EXPECT_FALSE(is_ours(kFd));
    EXPECT_EQ(test::engine.released_as, is_stale ? -1 : kFd);
  }
  Socket* socket = enter_fd(kFd);
  forget_stale_fd(kOther, *socket);
  EXPECT_TRUE(is_ours(kFd));
  forget_stale_fd(kFd, *socket);
  EXPECT_FALSE(is_ours(kFd));
}

TEST(FdTable, AUseOutlivesTheDescriptor) {
  Socket* socket = enter_fd(kFd);
  {
    SocketUse use(kFd);
    ASSERT_TRUE(use);
    drop_fd(kFd);
    EXPECT_FALSE(SocketUse(kFd));
    Socket* next = enter_fd(kFd);
    EXPECT_NE(next, socket) << "not given out while in use";
    drop_fd(kFd);
  }
}

TEST(FdTable, DropRangeTakesTheEndsToo) {
  for (int fd : {900, 905, 910}) enter_fd(fd);
  drop_fd_range(901, 909);
  EXPECT_TRUE(is_ours(900));
  EXPECT_FALSE(is_ours(905));
  drop_fd_range(900, ~0u);
  EXPECT_FALSE(is_ours(900));
  EXPECT_FALSE(is_ours(910));
}

TEST(FdTable, HintsKeepOriginAndReason) {
  static constexpr const char* kTexts[] = {"one", "two"};
  set_hint(kFd, Origin::kConnected, kTexts[0]);
  set_hint(kOther, Origin::kAccepted, kTexts[1]);
  EXPECT_EQ(hint_of(kFd).origin, Origin::kConnected);
  EXPECT_STREQ(hint_of(kFd).reason, "one");
  EXPECT_EQ(hint_of(kOther).origin, Origin::kAccepted);
  EXPECT_STREQ(hint_of(kOther).reason, "two");
  set_origin(kFd, Origin::kUnknown);
  EXPECT_STREQ(hint_of(kFd).reason, "");
}

TEST(FdTable, MoreReasonsThanFitAreForgottenAndNothingElse) {
  static char texts[100][2];
  for (auto& text : texts) text[0] = 'x';
  for (auto& text : texts) set_hint(kFd, Origin::kAccepted, text);
  EXPECT_EQ(hint_of(kFd).origin, Origin::kAccepted);
  EXPECT_STREQ(hint_of(kFd).reason, "");
}

// Threads close and reuse one number while others use it: every Socket is retired exactly once and
// no use sees one that is not its own.
TEST(FdTable, UseRacesWithCloseAndReuse) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 3; ++i) {
    users.emplace_back([&] {
      while (!is_over) {
        if (const SocketUse use(kFd); use) {
          const int mark = use->receive_low_water;
          EXPECT_EQ(use->receive_low_water, mark);
        }
      }
    });
  }
  test::reset_parts();
  constexpr int kRounds = 20'000;
  for (int i = 0; i < kRounds; ++i) {
    Socket* socket = enter_fd(kFd);
    ASSERT_NE(socket, nullptr);
    socket->phase = Phase::kListening;
    drop_fd(kFd);
  }
  is_over = true;
  for (std::thread& user : users) user.join();
  Socket* after = enter_fd(kFd);
  EXPECT_NE(after, nullptr);
  drop_fd(kFd);
}

TEST(References, CountsBothKinds) {
  References r;
  r.reset();
  ASSERT_TRUE(r.try_begin_call(base::process_generation()));
  ASSERT_TRUE(r.try_add_fd());
  EXPECT_FALSE(r.drop_fd().is_none());
  const References::Left left = r.drop_fd();
  EXPECT_EQ(left.fds, 0u);
  EXPECT_EQ(left.calls, 1u);
  EXPECT_FALSE(r.try_begin_call(base::process_generation())) << "no descriptor: on its way out";
  EXPECT_FALSE(r.try_add_fd());
  EXPECT_TRUE(r.end_call(base::process_generation()).is_none());
}

TEST(References, AChildForgetsTheCallsOfItsParentsThreads) {
  ASSERT_TRUE(base::process_init());
  References r;
  r.reset();
  ASSERT_TRUE(r.try_begin_call(base::process_generation()));
  ASSERT_TRUE(r.try_begin_call(base::process_generation()));
  const uint32_t parent = base::process_generation();
  const pid_t child = fork();
  if (child == 0) {
    // The forking thread returns through a call of its parent's: must not count twice.
    const bool is_kept = !r.end_call(parent).is_none();
    _exit(is_kept && r.drop_fd().is_none() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(EpollWatch, SetForgetAndFind) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 7}};
  set_watch(3, kFd, event);
  EXPECT_EQ(find_watch(3, event.data).fd, kFd);
  EXPECT_EQ(find_watch(4, event.data).fd, -1);
  forget_watch(3, kOther);
  EXPECT_EQ(find_watch(3, event.data).fd, kFd);
  forget_watches_of(kFd);
  EXPECT_EQ(find_watch(3, event.data).fd, -1);
  set_watch(3, kFd, event);
  forget_watches_in(3);
  EXPECT_EQ(find_watch(3, event.data).fd, -1);
}

TEST(EpollWatch, IsBoundedAndReusesPlaces) {
  for (int round = 0; round < 2; ++round) {
    for (unsigned i = 0; i < kMaxWatches + 10; ++i) {
      const epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
      set_watch(3, static_cast<int>(i), event);
    }
    EXPECT_EQ(find_watch(3, {.u64 = 0}).fd, 0);
    EXPECT_EQ(find_watch(3, {.u64 = kMaxWatches + 5}).fd, -1);
    forget_watches_in(3);
  }
}

}  // namespace
}  // namespace ddpsock::shim
