// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// This program contains the wrappers; its streams say of their memory what a test tells them, and
// what the kernel knows is asked by raw system calls.
#include "shim/pollers/memory_watch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/effort.h"
#include "base/kernel_call.h"
#include "base/spin.h"
#include "base/unfinished.h"
#include "shim/pollers/epoll_watch.h"
#include "shim/pollers/look_turn.h"
#include "shim/pollers/set_change.h"
#include "shim/pollers/set_wait.h"
#include "shim/pollers/watched_sets.h"
#include "shim/real.h"
#include "shim/test_parts.h"

namespace ddpsock::shim {
namespace {

using test::policy;

class MemoryWatch : public testing::Test {
 protected:
  // Two connections whose connecting ends are in DDPMODE, in memory, with nothing to read.
  MemoryWatch() {
    test::reset_parts();
    policy.is_active = true;
    policy.connect = policy.established = Mode::kProved;
    open(fds, peers);
  }
  // As many more.
  static void open(std::span<int> ours, std::span<int> theirs) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener, 4), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    const int before = test::engine.opened;
    for (size_t i = 0; i < ours.size(); ++i) {
      glance(static_cast<size_t>(before) + i) = {.may_be_in_memory = true, .is_in_memory = true};
      ours[i] = socket(AF_INET, SOCK_STREAM, 0);
      EXPECT_EQ(connect(ours[i], reinterpret_cast<sockaddr*>(&address), length), 0);
      theirs[i] = static_cast<int>(base::kernel_call(SYS_accept4, listener, nullptr, nullptr, 0));
    }
    EXPECT_EQ(test::engine.opened, before + static_cast<int>(ours.size()));
    close(listener);
  }
  ~MemoryWatch() override {
    for (const int fd : {fds[0], fds[1], peers[0], peers[1], set})
      if (fd >= 0) close(fd);
  }

  static engine::Glance& glance(size_t i) { return test::engine.glances[i]; }
  static void publish(size_t i) {
    glance(i).has_bytes = true;
    ++glance(i).position;
  }
  void ring(size_t i) const { EXPECT_EQ(base::kernel_call(SYS_write, peers[i], "b", 1), 1); }
  int control(int operation, size_t i, uint32_t events, uint64_t data = 0) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data != 0 ? data : 100 + i;
    return epoll_ctl(set, operation, fds[i], &event);
  }
  // The events of the one descriptor that is ready, 0 without one.
  uint32_t look() const {
    epoll_event events[4];
    const int count = epoll_wait(set, events, 4, 0);
    EXPECT_LE(count, 1);
    return count == 1 ? events[0].events : 0;
  }
  uint32_t kernels_look() const {
    epoll_event event;
    return base::kernel_call(SYS_epoll_wait, set, &event, 1, 0) == 1 ? event.events : 0;
  }

  std::array<int, 2> fds{-1, -1}, peers{-1, -1};
  const int set = epoll_create1(EPOLL_CLOEXEC);
};

TEST_F(MemoryWatch, BytesInMemoryAreAnEventAlthoughTheKernelKnowsOfNone) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  EXPECT_EQ(look(), 0u);
  publish(1);
  epoll_event events[2];
  ASSERT_EQ(epoll_wait(set, events, 2, -1), 1);
  EXPECT_EQ(events[0].events, uint32_t{EPOLLIN});
  const uint64_t data = events[0].data.u64;  // of a packed structure
  EXPECT_EQ(data, 101u);
  EXPECT_EQ(kernels_look(), 0u);
  EXPECT_EQ(look(), uint32_t{EPOLLIN}) << "until they are read";
  glance(1).has_bytes = false;
  EXPECT_EQ(look(), 0u);
}

TEST_F(MemoryWatch, RoomIsAnEventForWhoAsked) {
  test::engine.have_memory_room[0] = true;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  EXPECT_EQ(look(), 0u);
  ASSERT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLIN | EPOLLOUT), 0);
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN | EPOLLOUT});
}

TEST_F(MemoryWatch, AnEdgeForEachChange) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN | EPOLLET), 0);
  for (int i = 0; i < 3; ++i) {
    publish(0);
    EXPECT_EQ(look(), uint32_t{EPOLLIN});
    EXPECT_EQ(look(), 0u);
  }
}

TEST_F(MemoryWatch, AnEdgeTellsOfRoomToo) {
  test::engine.have_memory_room[0] = true;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN | EPOLLOUT | EPOLLET), 0);
  look();
  for (int i = 0; i < 2; ++i) {
    publish(0);
    EXPECT_EQ(look(), uint32_t{EPOLLIN | EPOLLOUT});
    EXPECT_EQ(look(), 0u);
  }
  test::engine.have_memory_room[0] = false;
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN | EPOLLOUT}) << "of the kernel, to which bytes go then";
}

// Another thread waits in the set while a pipe is added that has the same data.
TEST_F(MemoryWatch, TheEdgeOfAMemberThatComesMeanwhile) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  static int reported;
  static const auto epoll_ctl_of_libc = real.epoll_ctl;
  real.epoll_ctl = [](int to, int operation, int fd, epoll_event* as) {
    const int result = epoll_ctl_of_libc(to, operation, fd, as);
    epoll_event seen;
    reported = epoll_wait(to, &seen, 1, 0);
    return result;
  };
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = 100}};
  EXPECT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
  real.epoll_ctl = epoll_ctl_of_libc;
  EXPECT_EQ(reported, 1);
  for (const int fd : ends) close(fd);
}

TEST_F(MemoryWatch, AllThatHaveBytesComeInTurnWhereThereIsNoRoomForAll) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  for (const size_t i : {0, 1}) {
    publish(i);
    ring(i);
  }
  std::array<int, 2> times{};
  for (int i = 0; i < 6; ++i) {
    epoll_event event;
    ASSERT_EQ(epoll_wait(set, &event, 1, -1), 1);
    ++times[event.data.u64 - 100];
  }
  EXPECT_EQ(times[0], 3);
  EXPECT_EQ(times[1], 3);
}

TEST_F(MemoryWatch, ABellThatLiesUnreadIsNoEvent) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  ring(0);
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN}) << "one, for both";
  glance(0).has_bytes = false;
  EXPECT_EQ(kernels_look(), uint32_t{EPOLLIN});
  EXPECT_EQ(look(), 0u);
}

TEST_F(MemoryWatch, AnEndIsOneBesideABell) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN | EPOLLRDHUP), 0);
  ring(0);
  publish(0);
  EXPECT_NE(look() & EPOLLIN, 0u);
  glance(0).has_bytes = false;
  close(std::exchange(peers[0], -1));
  EXPECT_NE(look() & EPOLLRDHUP, 0u);
}

TEST_F(MemoryWatch, WhatOnlyTheKernelCanServeIsLeftToIt) {
  publish(0);
  for (const uint32_t flag : {uint32_t{EPOLLONESHOT}, uint32_t{EPOLLEXCLUSIVE}}) {
    ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN | flag), 0);
    EXPECT_EQ(look(), 0u);
    ASSERT_EQ(control(EPOLL_CTL_DEL, 0, 0), 0);
  }
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN, 7), 0);
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN, 7), 0);
  EXPECT_EQ(look(), 0u) << "two descriptors with the same data";
}

TEST_F(MemoryWatch, OfStreamsThatCannotBeInMemoryTheKernelTells) {
  glance(0) = {};
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  publish(0);
  EXPECT_EQ(look(), 0u);
  ring(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
}

TEST_F(MemoryWatch, TheKernelHearsOfAChangeWhenItIsAskedNext) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  ring(0);
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
  ASSERT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLRDHUP), 0);
  EXPECT_EQ(kernels_look(), uint32_t{EPOLLIN}) << "not yet";
  EXPECT_EQ(look(), 0u);
  EXPECT_EQ(kernels_look(), 0u);
  ASSERT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLIN), 0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
  // An error is the kernel's to find.
  ASSERT_EQ(control(EPOLL_CTL_DEL, 0, 0), 0);
  EXPECT_EQ(control(EPOLL_CTL_DEL, 0, 0), -1);
  EXPECT_EQ(errno, ENOENT);
}

// A set of which there is always something to report, and which nobody sleeps on, is asked often
// whether something else is ready. In the end the kernel says nothing of bells.
class QuietMemoryWatch : public MemoryWatch {
 protected:
  QuietMemoryWatch() {
    EXPECT_EQ(pipe2(pipe, O_CLOEXEC | O_NONBLOCK), 0);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = 7}};
    EXPECT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, pipe[0], &event), 0);
    EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
    ring(0);
    for (int i = 0; i < 20; ++i) {
      publish(0);
      EXPECT_EQ(look(), uint32_t{EPOLLIN});
    }
    EXPECT_EQ(kernels_look(), 0u) << "of a bell that lies unread";
  }
  ~QuietMemoryWatch() override {
    close(pipe[0]);
    close(pipe[1]);
  }

  int pipe[2];
};

TEST_F(QuietMemoryWatch, WhatElseIsReadyIsReportedAtOnce) {
  for (int i = 0; i < 20; ++i) {
    publish(0);
    EXPECT_EQ(look(), uint32_t{EPOLLIN});
    publish(0);
    EXPECT_EQ(base::kernel_call(SYS_write, pipe[1], "p", 1), 1);
    epoll_event events[4];
    EXPECT_EQ(epoll_wait(set, events, 4, 0), 2);
    char byte;
    EXPECT_EQ(base::kernel_call(SYS_read, pipe[0], &byte, 1), 1);
  }
}

TEST_F(QuietMemoryWatch, TheKernelSpeaksBeforeAnybodySleepsOnIt) {
  glance(0).has_bytes = false;
  EXPECT_EQ(look(), 0u);
  EXPECT_EQ(kernels_look(), uint32_t{EPOLLIN});
}

TEST_F(QuietMemoryWatch, TheKernelSpeaksToAForkedChild) {
  const pid_t child = fork();
  if (child == 0) _exit(kernels_look() == uint32_t{EPOLLIN} ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
  EXPECT_EQ(kernels_look(), uint32_t{EPOLLIN}) << "now that the set is another's too";
}

TEST_F(QuietMemoryWatch, TheKernelSpeaksToWhoAsksAboutTheSet) {
  pollfd outside{set, POLLIN, 0};
  EXPECT_EQ(poll(&outside, 1, 0), 1);
}

TEST_F(QuietMemoryWatch, AnotherStreamMakesNoDifference) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  ring(1);
  glance(0).has_bytes = false;
  for (int i = 0; i < 20; ++i) {
    publish(1);
    EXPECT_EQ(look(), uint32_t{EPOLLIN});
  }
  glance(1).has_bytes = false;
  EXPECT_EQ(look(), 0u);
  EXPECT_EQ(control(EPOLL_CTL_DEL, 0, 0), 0);
  EXPECT_EQ(kernels_look(), uint32_t{EPOLLIN});
}

// The peer's process was killed, and has noted no end.
TEST_F(QuietMemoryWatch, AnEndIsReportedWhereOthersAreBusy) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  glance(0).has_bytes = false;
  close(std::exchange(peers[0], -1));
  publish(1);
  epoll_event events[4];
  ASSERT_EQ(epoll_wait(set, events, 4, 0), 2);
  for (const epoll_event& event : {events[0], events[1]})
    EXPECT_EQ(event.events, uint32_t{EPOLLIN}) << "the other bits were not asked for";
}

// Another thread's that is under way stays its parent's, and so does what a signal handler forked
// in.
TEST_F(MemoryWatch, AForkedChildHasNoChangeUnderWay) {
  std::optional<MemberChange> change(std::in_place, set);
  const pid_t child = fork();
  if (child == 0) {
    const bool has_another = MemberChange::is_any_of(set);
    change.reset();
    _exit(has_another ? 1 : MemberChange::is_any_of(set) ? 2 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(MemberChange::is_any_of(set));
  change.reset();
  EXPECT_FALSE(MemberChange::is_any_of(set));
}

// Another thread acts at a point of this one's orders to the kernel, the first for which `is_it` is
// true; there it is waited for, but not for long: it may have to wait itself.
class Meanwhile {
 public:
  enum class When : uint8_t { kBefore, kBehind };

  Meanwhile(When when, std::function<bool(int operation, uint32_t events)> is_it,
            std::function<void()> act)
      : when_(when), is_it_(std::move(is_it)), act_(std::move(act)) {
    current = this;
    real.epoll_ctl = [](int set, int operation, int fd, epoll_event* event) {
      return current->order(set, operation, fd, event);
    };
  }
  ~Meanwhile() {
    end();
    EXPECT_TRUE(has_begun());
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

  bool has_begun() const { return has_begun_; }
  void end() {
    if (other_.joinable()) other_.join();
    real.epoll_ctl = epoll_ctl_of_libc;
  }

 private:
  int order(int set, int operation, int fd, epoll_event* event) {
    const bool is_here = std::this_thread::get_id() == mine_ && !has_begun_ &&
                         is_it_(operation, event != nullptr ? event->events : 0);
    if (is_here && when_ == When::kBefore) act();
    const int result = epoll_ctl_of_libc(set, operation, fd, event);
    if (is_here && when_ == When::kBehind) act();
    return result;
  }
  void act() {
    has_begun_ = true;
    other_ = std::thread([this] {
      act_();
      has_ended_ = true;
    });
    for (int i = 0; i < 20 && !has_ended_; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  static Meanwhile* current;
  static inline const auto epoll_ctl_of_libc = real.epoll_ctl;

  const std::thread::id mine_ = std::this_thread::get_id();
  const When when_;
  const std::function<bool(int, uint32_t)> is_it_;
  const std::function<void()> act_;
  bool has_begun_ = false;
  std::atomic<bool> has_ended_ = false;
  std::thread other_;
};
Meanwhile* Meanwhile::current = nullptr;

using When = Meanwhile::When;

bool is_add(int operation, uint32_t) {
  return operation == EPOLL_CTL_ADD;
}

// The words that make the kernel quiet about a member are not the last that it hears.
TEST_F(QuietMemoryWatch, AnothersChangeMeanwhileIsNotUndone) {
  glance(0).has_bytes = false;
  EXPECT_EQ(look(), 0u);
  const auto is_hush = [](int operation, uint32_t events) {
    return operation == EPOLL_CTL_MOD && (events & EPOLLIN) == 0;
  };
  Meanwhile other(When::kBefore, is_hush,
                  [this] { EXPECT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLIN), 0); });
  for (int i = 0; i < 1000 && !other.has_begun(); ++i) {
    publish(0);
    EXPECT_EQ(look(), uint32_t{EPOLLIN});
  }
  other.end();
  glance(0).has_bytes = false;
  EXPECT_EQ(look(), 0u);
  EXPECT_EQ(kernels_look(), uint32_t{EPOLLIN}) << "before anybody sleeps on it";
}

// It is deleted while the library speaks to the kernel for who is about to sleep.
TEST_F(QuietMemoryWatch, WhatIsDeletedMeanwhileIsNotPutBack) {
  const auto is_readable = [](int operation, uint32_t events) {
    return operation == EPOLL_CTL_MOD && (events & EPOLLIN) != 0;
  };
  Meanwhile other(When::kBefore, is_readable,
                  [this] { EXPECT_EQ(control(EPOLL_CTL_DEL, 0, 0), 0); });
  glance(0).has_bytes = false;
  epoll_event event{};
  EXPECT_LE(epoll_wait(set, &event, 1, 20), 1);
  other.end();
  EXPECT_EQ(kernels_look(), 0u);
  event = {.events = EPOLLIN, .data = {}};
  EXPECT_EQ(base::kernel_call(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fds[0], &event), 0)
      << "it is a member still";
}

// What was put off is told when another thread, which has told it already, adds it again.
TEST_F(MemoryWatch, WhatIsAddedMeanwhileIsNotTakenOut) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  publish(0);
  ASSERT_EQ(look(), uint32_t{EPOLLIN});
  glance(0).has_bytes = false;
  ASSERT_EQ(control(EPOLL_CTL_DEL, 0, 0), 0);
  const auto is_deletion = [](int operation, uint32_t) { return operation == EPOLL_CTL_DEL; };
  Meanwhile other(When::kBefore, is_deletion,
                  [this] { EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0); });
  epoll_event event;
  EXPECT_EQ(epoll_wait(set, &event, 1, 0), 0);
  other.end();
  ring(0);
  EXPECT_EQ(kernels_look(), uint32_t{EPOLLIN});
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
}

// Another thread hears of the new member before epoll_ctl() has returned, and deletes it.
TEST_F(MemoryWatch, WhatIsDeletedBeforeItIsKnownIsNoMember) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  Meanwhile other(When::kBehind, is_add, [this] { EXPECT_EQ(control(EPOLL_CTL_DEL, 0, 0), 0); });
  EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  other.end();
  ring(0);
  EXPECT_EQ(kernels_look(), 0u);
  publish(0);
  EXPECT_EQ(look(), 0u);
}

// Or gives it other data. The first of a set too.
TEST_F(MemoryWatch, WhatIsChangedBeforeItIsKnownStaysChanged) {
  Meanwhile other(When::kBehind, is_add,
                  [this] { EXPECT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLIN, 900), 0); });
  EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN, 800), 0);
  other.end();
  publish(0);
  epoll_event event{};
  ASSERT_EQ(epoll_wait(set, &event, 1, 0), 1);
  EXPECT_EQ(uint64_t{event.data.u64}, 900u);
}

// The change had begun before anybody could watch the set.
TEST_F(MemoryWatch, WhatIsChangedBeforeItsSetIsWatchedStaysChanged) {
  glance(0).may_be_in_memory = false;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN, 700), 0);
  const auto is_change = [](int operation, uint32_t) { return operation == EPOLL_CTL_MOD; };
  Meanwhile other(When::kBehind, is_change, [this] {
    glance(0).may_be_in_memory = true;
    EXPECT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLIN, 900), 0);
  });
  EXPECT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLIN, 800), 0);
  other.end();
  publish(0);
  EXPECT_EQ(look(), 0u) << "nobody knows here which the kernel has heard last";
  ring(0);
  epoll_event event{};
  ASSERT_EQ(epoll_wait(set, &event, 1, 0), 1);
  EXPECT_EQ(uint64_t{event.data.u64}, 900u);
}

// Deleted before anybody could watch the set; added again, and looked at, before that is known.
TEST_F(MemoryWatch, WhatIsAddedBeforeItsDeletionIsKnownStaysAMember) {
  glance(0).may_be_in_memory = false;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN, 700), 0);
  const auto is_deletion = [](int operation, uint32_t) { return operation == EPOLL_CTL_DEL; };
  Meanwhile other(When::kBehind, is_deletion, [this] {
    glance(0).may_be_in_memory = true;
    EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN, 900), 0);
    publish(0);
    EXPECT_EQ(look(), uint32_t{EPOLLIN});
  });
  EXPECT_EQ(control(EPOLL_CTL_DEL, 0, 0), 0);
  other.end();
  WatchedSet* const watched = find_watched_set(set);
  ASSERT_NE(watched, nullptr);
  EXPECT_TRUE(watched->members().others().is_any())
      << "it is the kernel's: nobody knows which it heard last";
  ring(0);
  epoll_event event{};
  ASSERT_EQ(epoll_wait(set, &event, 1, 0), 1);
  EXPECT_EQ(uint64_t{event.data.u64}, 900u);
}

// Or closes it.
TEST_F(MemoryWatch, WhatIsClosedBeforeItIsKnownIsNoMember) {
  const int number = fds[0];
  Meanwhile other(When::kBehind, is_add, [this] { close(std::exchange(fds[0], -1)); });
  EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  other.end();
  WatchedSet* const watched = find_watched_set(set);
  ASSERT_NE(watched, nullptr);
  EXPECT_EQ(watched->members().streams().find(number), nullptr);
}

// The first members of a set, of two threads.
TEST_F(MemoryWatch, TheFirstTwoOfTwoThreadsAreBothReported) {
  Meanwhile other(When::kBefore, is_add,
                  [this] { EXPECT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0); });
  EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  other.end();
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
  glance(0).has_bytes = false;
  ring(1);
  epoll_event event{};
  EXPECT_EQ(epoll_wait(set, &event, 1, 1000), 1);
}

std::function<void()> act_of_handler;

// A signal handler that changes the set in the middle of its own thread's change. What is known of
// the members cannot be relied on then.
TEST_F(MemoryWatch, ASetThatAHandlerChangesInsideAChangeIsTheKernels) {
  static const auto epoll_ctl_of_libc = real.epoll_ctl;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  act_of_handler = [this] { EXPECT_EQ(control(EPOLL_CTL_DEL, 0, 0), 0); };
  signal(SIGUSR1, [](int) { act_of_handler(); });
  real.epoll_ctl = [](int to, int operation, int fd, epoll_event* event) {
    const int result = epoll_ctl_of_libc(to, operation, fd, event);
    if (operation == EPOLL_CTL_ADD) raise(SIGUSR1);
    return result;
  };
  EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  real.epoll_ctl = epoll_ctl_of_libc;
  signal(SIGUSR1, SIG_DFL);
  EXPECT_EQ(find_watched_set(set), nullptr);
  publish(0);
  ring(0);
  EXPECT_EQ(look(), 0u);
  ring(1);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
}

// Or closes a member. The number may be another's soon.
TEST_F(MemoryWatch, WhatAHandlerClosesInsideAChangeIsNoMember) {
  static const auto epoll_ctl_of_libc = real.epoll_ctl;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  bool is_member = true;
  act_of_handler = [&] {
    const int number = std::exchange(fds[1], -1);
    close(number);
    is_member = find_watched_set(set)->members().streams().find(number) != nullptr;
  };
  signal(SIGUSR1, [](int) { act_of_handler(); });
  real.epoll_ctl = [](int to, int operation, int fd, epoll_event* event) {
    const int result = epoll_ctl_of_libc(to, operation, fd, event);
    if (operation == EPOLL_CTL_ADD) raise(SIGUSR1);
    return result;
  };
  EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  real.epoll_ctl = epoll_ctl_of_libc;
  signal(SIGUSR1, SIG_DFL);
  EXPECT_FALSE(is_member);
}

// Or changes what was put off before.
TEST_F(MemoryWatch, WhatWasPutOffComesBeforeAHandlersChange) {
  static const auto epoll_ctl_of_libc = real.epoll_ctl;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  publish(1);
  ASSERT_EQ(look(), uint32_t{EPOLLIN});
  glance(1).has_bytes = false;
  ASSERT_EQ(control(EPOLL_CTL_DEL, 1, 0), 0);
  static bool has_come;
  has_come = false;
  act_of_handler = [this] { EXPECT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN, 900), 0); };
  signal(SIGUSR1, [](int) { act_of_handler(); });
  real.epoll_ctl = [](int to, int operation, int fd, epoll_event* event) {
    const int result = epoll_ctl_of_libc(to, operation, fd, event);
    if (operation == EPOLL_CTL_ADD && !std::exchange(has_come, true)) raise(SIGUSR1);
    return result;
  };
  EXPECT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  real.epoll_ctl = epoll_ctl_of_libc;
  signal(SIGUSR1, SIG_DFL);
  ring(1);
  epoll_event event{};
  ASSERT_EQ(epoll_wait(set, &event, 1, 0), 1);
  EXPECT_EQ(uint64_t{event.data.u64}, 900u);
}

// A thread that does not come out of its change is waited for once, and not by who closes what is
// in no set. By each call it would be minutes.
TEST_F(MemoryWatch, AChangeThatDoesNotEndIsWaitedForOnce) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  WatchedSet* const watched = find_watched_set(set);
  ASSERT_NE(watched, nullptr);
  std::atomic<bool> is_held = false, may_end = false;
  std::thread holder([&] {
    const WatchedSet::Hold hold(*watched);
    is_held = hold.is_held();
    while (!may_end) std::this_thread::yield();
  });
  while (!is_held) std::this_thread::yield();
  close(std::exchange(fds[1], -1));
  for (uint64_t i = 0; i < 300; ++i) EXPECT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLIN, 1'000 + i), 0);
  may_end = true;
  holder.join();
  EXPECT_EQ(find_watched_set(set), nullptr);
  ring(0);
  epoll_event event{};
  ASSERT_EQ(epoll_wait(set, &event, 1, 0), 1);
  EXPECT_EQ(uint64_t{event.data.u64}, 1'299u);
}

// Between finding a set and counting itself a thread may lose it to the kernel, and its place to
// another set.
TEST_F(MemoryWatch, WhoComesLateIsNotInsideAnotherSet) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  WatchedSet* const watched = find_watched_set(set);
  ASSERT_NE(watched, nullptr);
  EXPECT_TRUE(SetWait(*watched, set).is_of_set());
  share_set(set);
  EXPECT_FALSE(SetWait(*watched, set).is_of_set());
  const int other = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(other, EPOLL_CTL_ADD, fds[1], &event), 0);
  EXPECT_EQ(find_watched_set(other), watched);
  EXPECT_FALSE(SetWait(*watched, set).is_of_set());
  close(other);
}

// And one that jumps out of it: nobody waits for that change to end.
TEST_F(MemoryWatch, AChangeThatAHandlerJumpsOutOfHoldsNobodyUp) {
  static const auto epoll_ctl_of_libc = real.epoll_ctl;
  static sigjmp_buf back;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  WatchedSet* const watched = find_watched_set(set);
  ASSERT_NE(watched, nullptr);
  // Itself: where a sanitizer has its own siglongjmp, ours is not called, and finds no frames.
  act_of_handler = [] {
    while (base::Unfinished* const call = base::Unfinished::innermost_of_thread()) call->leave();
    siglongjmp(back, 1);
  };
  signal(SIGUSR1, [](int) { act_of_handler(); });
  if (sigsetjmp(back, 1) == 0) {
    real.epoll_ctl = [](int, int, int, epoll_event*) { return raise(SIGUSR1); };
    control(EPOLL_CTL_ADD, 0, EPOLLIN);
  }
  real.epoll_ctl = epoll_ctl_of_libc;
  signal(SIGUSR1, SIG_DFL);
  EXPECT_EQ(find_watched_set(set), nullptr) << "what the kernel has heard is not known";
  bool is_held = false;
  std::thread([&] { is_held = WatchedSet::Hold(*watched).is_held(); }).join();
  EXPECT_TRUE(is_held);
  ring(1);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
}

// Without the kernel, which would let one of them through behind the other.
TEST_F(MemoryWatch, MembersThatComeAtOnceAreToldApart) {
  constexpr int kRounds = 100;
  std::atomic<int> arrived{0};
  const auto meet = [&](int nth) {
    arrived.fetch_add(1);
    while (arrived < 2 * nth) std::this_thread::yield();
  };
  const auto come_and_go = [&](size_t i, int round) {
    SetChange(set, EPOLL_CTL_DEL, fds[i], nullptr).note();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = 100 + i;
    arrived.fetch_add(1);
    while (arrived < 6 * round + 2) continue;
    SetChange(set, EPOLL_CTL_ADD, fds[i], &event).note();
    meet(3 * round + 2);
  };
  for (const size_t i : {0, 1}) ASSERT_EQ(control(EPOLL_CTL_ADD, i, EPOLLIN), 0);
  std::thread other([&] {
    for (int round = 0; round < kRounds; ++round) {
      come_and_go(1, round);
      meet(3 * round + 3);
    }
  });
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    come_and_go(0, round);
    epoll_event events[4];
    for (const size_t i : {0, 1}) {
      publish(i);
      const int count = epoll_wait(set, events, 4, 0);
      const uint64_t data = events[0].data.u64;
      if (count != 1 || data != 100 + i) ++wrong;
      glance(i).has_bytes = false;
    }
    EXPECT_EQ(epoll_wait(set, events, 4, 1), 0);  // and no bells that lie keep a place
    meet(3 * round + 3);
  }
  other.join();
  EXPECT_EQ(wrong, 0);
}

// The place of one that was closed is nobody's.
TEST_F(MemoryWatch, WhatIsNoDescriptorIsNoMember) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN), 0);
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
  close(std::exchange(fds[0], -1));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 100}};
  for (const int operation : {EPOLL_CTL_DEL, EPOLL_CTL_ADD, EPOLL_CTL_MOD}) {
    errno = 0;
    EXPECT_EQ(epoll_ctl(set, operation, -1, &event), -1);
    EXPECT_EQ(errno, EBADF);
  }
  EXPECT_EQ(kernels_look(), 0u);
}

TEST_F(MemoryWatch, AClosedDescriptorIsForgotten) {
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN});
  close(std::exchange(fds[0], -1));
  EXPECT_EQ(look(), 0u);
}

// Sets are closed without a word; those that were are forgotten when all places are taken.
TEST_F(MemoryWatch, ClosedSetsDoNotUseUpThePlaces) {
  std::array<int, 40> closed;
  for (int& one : closed) {
    one = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    ASSERT_EQ(epoll_ctl(one, EPOLL_CTL_ADD, fds[1], &event), 0);
  }
  for (const int one : closed) close(one);
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN), 0);
  publish(0);
  EXPECT_EQ(look(), uint32_t{EPOLLIN}) << "known from memory, for the kernel has no bell";
}

TEST_F(MemoryWatch, ASetThatWasClosedIsForgottenWithItsNumber) {
  for (int i = 0; i < 40; ++i) {
    const int other = epoll_create1(EPOLL_CLOEXEC);
    EXPECT_EQ(find_watched_set(other), nullptr) << "set " << i;
    epoll_event event{.events = EPOLLIN, .data = {}};
    ASSERT_EQ(epoll_ctl(other, EPOLL_CTL_ADD, fds[0], &event), 0);
    EXPECT_NE(find_watched_set(other), nullptr) << "set " << i;
    close(other);
  }
}

// Streams that no place is left for, of which the kernel alone tells.
// What had no place when the bells were settled is found the next time.
TEST_F(MemoryWatch, AnEdgeThatHadNoPlaceIsNotSleptOn) {
  epoll_event event;
  const auto wait = [&] { return epoll_wait(set, &event, 1, 1000) == 1 ? int(event.data.u64) : 0; };
  ASSERT_EQ(control(EPOLL_CTL_ADD, 0, EPOLLIN | EPOLLET), 0);
  publish(0);
  EXPECT_EQ(wait(), 100);
  glance(0).has_bytes = false;
  ASSERT_EQ(control(EPOLL_CTL_ADD, 1, EPOLLIN | EPOLLET), 0);
  publish(0);
  publish(1);
  const int first = wait();
  ASSERT_TRUE(first == 100 || first == 101);
  glance(size_t(first) - 100).has_bytes = false;
  publish(size_t(first) - 100);
  EXPECT_EQ(wait(), first == 100 ? 101 : 100);
  glance(first == 100 ? 1 : 0).has_bytes = false;
  EXPECT_EQ(wait(), first);
}

class LargeMemoryWatch : public MemoryWatch {
 protected:
  static constexpr size_t kMore = StreamTable::kMost;
  static constexpr uint64_t kFirstBeyond = 1000 + StreamTable::kMost - 2;

  LargeMemoryWatch() {
    open(more_fds, more_peers);
    for (const size_t i : {0, 1}) EXPECT_EQ(control(EPOLL_CTL_ADD, i, EPOLLIN), 0);
    for (size_t i = 0; i < kMore; ++i) {
      epoll_event event{.events = EPOLLIN, .data = {.u64 = 1000 + i}};
      EXPECT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, more_fds[i], &event), 0);
    }
  }
  ~LargeMemoryWatch() override {
    for (const int fd : more_fds) close(fd);
    for (const int fd : more_peers) close(fd);
  }
  void ring_beyond() const {
    EXPECT_EQ(base::kernel_call(SYS_write, more_peers.back(), "b", 1), 1);
  }
  // How many are ready; one that is beyond the table always.
  int wait() const {
    std::array<epoll_event, 16> events;
    const int count = epoll_wait(set, events.data(), int{events.size()}, 1000);
    bool has_beyond = false;
    for (int i = 0; i < count; ++i)
      has_beyond |= events[static_cast<size_t>(i)].data.u64 >= kFirstBeyond;
    EXPECT_TRUE(has_beyond);
    return count;
  }

  std::array<int, kMore> more_fds, more_peers;
};

TEST_F(LargeMemoryWatch, ItsStreamsAreLookedAtWhileThatFindsSomething) {
  ring_beyond();
  for (int i = 0; i < 40; ++i) EXPECT_EQ(wait(), 1);
  publish(0);
  EXPECT_EQ(wait(), 1) << "looks found nothing for long";
  int waits = 0;
  while (wait() == 1 && waits < 100) ++waits;
  EXPECT_LT(waits, 64) << "it looks again now and then";
  for (int i = 0; i < 100; ++i) EXPECT_EQ(wait(), 2);
}

// A program that never sleeps asks as often as it can.
TEST_F(LargeMemoryWatch, ALookWhileNothingComesIsNotVain) {
  epoll_event events[16];
  for (int i = 0; i < 100; ++i) EXPECT_EQ(epoll_wait(set, events, 16, 0), 0);
  publish(0);
  EXPECT_EQ(epoll_wait(set, events, 16, 0), 1);
}

// The kernel has told of the edge while the bell lay: only a look can tell of what came then.
TEST_F(LargeMemoryWatch, AnEdgeWhoseBellLayIsNotSleptOn) {
  EXPECT_EQ(control(EPOLL_CTL_MOD, 0, EPOLLIN | EPOLLET), 0);
  ring_beyond();
  for (int i = 0; i < 40; ++i) EXPECT_EQ(wait(), 1);
  publish(0);
  for (int i = 0; i < 64 && wait() == 1; ++i) {
  }
  glance(0).has_bytes = false;
  epoll_event events[16];
  EXPECT_EQ(epoll_wait(set, events, 16, 0), 1) << "looks are vain again";
  char bell;
  EXPECT_EQ(base::kernel_call(SYS_read, more_fds.back(), &bell, 1), 1);
  publish(0);
  EXPECT_EQ(epoll_wait(set, events, 16, 1000), 1);
}

TEST_F(LargeMemoryWatch, WhoNeverSleepsIsToldByTheKernelToo) {
  ring_beyond();
  epoll_event events[16];
  for (int i = 0; i < 40; ++i) EXPECT_EQ(epoll_wait(set, events, 16, 0), 1);
  publish(0);
  EXPECT_EQ(epoll_wait(set, events, 16, 0), 1);
}

// Who rings then wakes nobody.
TEST_F(LargeMemoryWatch, TheKernelIsAskedBeforeItIsSleptOn) {
  ring_beyond();
  for (int i = 0; i < 40; ++i) wait();
  base::Spin::mine().note_peer(100'000);
  const uint32_t sleeps = base::effort.waits;
  EXPECT_EQ(wait(), 1);
  EXPECT_EQ(base::effort.waits, sleeps);
}

TEST_F(LargeMemoryWatch, WhatComesLaterIsSleptFor) {
  ring_beyond();
  for (int i = 0; i < 40; ++i) wait();
  char byte;
  EXPECT_EQ(base::kernel_call(SYS_read, more_fds.back(), &byte, 1), 1);
  for (const uint32_t cpu : {100'000u, 0u, base::current_cpu()}) {
    base::Spin::mine().note_peer(cpu);
    epoll_event event;
    const Time start = base::now();
    EXPECT_EQ(epoll_wait(set, &event, 1, 20), 0);
    EXPECT_GE((base::now() - start).ns, Duration::from_ms(19).ns);
    std::thread peer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ring_beyond();
    });
    EXPECT_EQ(wait(), 1);
    peer.join();
    EXPECT_EQ(base::kernel_call(SYS_read, more_fds.back(), &byte, 1), 1);
  }
}

TEST(LookTurn, GoesOnWhereFourOfFiveFindSomething) {
  LookTurn turn{};
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(turn.is_due());
    turn.note(i % 5 != 0);
  }
}

TEST(LookTurn, IsRareWhereOneOfTwoDoes) {
  LookTurn turn{};
  int looks = 0;
  for (int i = 0; i < 10'000; ++i)
    if (turn.is_due()) turn.note(++looks % 2 == 0);
  EXPECT_LT(looks, 1000);
  EXPECT_GT(looks, 100);
}

}  // namespace
}  // namespace ddpsock::shim
