// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process that shares a connection and is killed at any instruction of a call: single steps tell
// where. Who goes on reads what the dead one has not taken, sends what comes after, or is told that
// it cannot; it never waits, and never gets other bytes.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

constexpr size_t kSize = 100;

struct Call {
  const char* name;
  bool is_send;
  void (*make)(int fd);
};
void PrintTo(const Call& call, std::ostream* out) {
  *out << call.name;
}

char room[4 * kSize];

const Call kCalls[] = {
    {"Recv", false, [](int fd) { recv(fd, room, kSize, 0); }},
    {"RecvOfAPart", false, [](int fd) { recv(fd, room, kSize / 2, 0); }},
    {"RecvOfAll", false, [](int fd) { recv(fd, room, 2 * kSize, MSG_WAITALL); }},
    {"RecvWithoutWaiting", false, [](int fd) { recv(fd, room, kSize, MSG_DONTWAIT); }},
    {"Peek", false, [](int fd) { recv(fd, room, kSize, MSG_PEEK); }},
    {"Send", true, [](int fd) { send(fd, room, kSize, MSG_NOSIGNAL); }},
};

class KilledStepwise : public TcpTest, public testing::WithParamInterface<Call> {
 protected:
  KilledStepwise() { start_deadline(60); }

  using Step = decltype(PTRACE_SINGLESTEP);

  // Begins the call in a child and kills it after `count` steps. False: it was done before.
  bool kill_after(Step step, int count, int fd) {
    const pid_t child = fork_child();
    if (child == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotAllowed);
      kill(getpid(), SIGSTOP);
      GetParam().make(fd);
      _exit(0);
    }
    int status = 0;
    bool is_there = waitpid(child, &status, 0) == child && WIFSTOPPED(status);
    is_allowed_ = is_there || WEXITSTATUS(status) != kNotAllowed;
    for (int i = 0; i < count && is_there; ++i) {
      EXPECT_EQ(ptrace(step, child, nullptr, nullptr), 0);
      is_there = waitpid(child, &status, 0) == child && WIFSTOPPED(status);
    }
    if (is_there) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    return is_there;
  }
  // In a pid namespace of its own every second time, where that is allowed.
  static pid_t fork_child() {
    static bool is_allowed = true, is_its_turn = false;
    is_its_turn = !is_its_turn;
    if (is_allowed && is_its_turn) {
      const auto child = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
      if (child >= 0) return child;
      is_allowed = false;
    }
    return fork();
  }

  // Whether the call was still going on.
  bool kill_one(Step step, int count) {
    Pair pair = connected_pair();
    const int client = pair.client.get(), server = pair.server.get();
    expect_alive(client, server);
    memcpy(room, stream_.data(), kSize);
    if (!GetParam().is_send) send_all(client, stream_.substr(0, 2 * kSize));
    const bool was_there = kill_after(step, count, server);
    const int from = GetParam().is_send ? server : client;
    const int to = GetParam().is_send ? client : server;
    const std::string last = stream_.substr(GetParam().is_send ? kSize : 2 * kSize, kSize);
    set_timeout(server, SO_SNDTIMEO, 5'000);
    set_timeout(to, SO_RCVTIMEO, 5'000);
    if (send(from, last.data(), last.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(last.size())) {
      expect_rest(to, last);
    } else {
      EXPECT_TRUE(is_in_ddp_mode());
      EXPECT_NE(errno, EAGAIN) << "step " << count;
    }
    return was_there;
  }
  void expect_rest(int fd, const std::string& last) {
    std::string got;
    while (got.size() < last.size() || got.substr(got.size() - last.size()) != last) {
      char bytes[kSize];
      const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
      if (n <= 0) {
        EXPECT_TRUE(is_in_ddp_mode());
        EXPECT_TRUE(n == 0 || errno != EAGAIN);
        return;
      }
      got.append(bytes, static_cast<size_t>(n));
    }
    const std::string all = stream_.substr(0, GetParam().is_send ? 2 * kSize : 3 * kSize);
    ASSERT_LE(got.size(), all.size());
    EXPECT_EQ(got, all.substr(all.size() - got.size()));
  }

  static constexpr int kNotAllowed = 77;
  const std::string stream_ = pattern(3 * kSize);
  bool is_allowed_ = true;
};

TEST_P(KilledStepwise, AtEachEndOfASystemCall) {
  for (int i = 1; kill_one(PTRACE_SYSCALL, i) && !HasFailure(); ++i) ASSERT_LT(i, 1'000);
  if (!is_allowed_) GTEST_SKIP() << "no process may be traced";
}

// Some instructions; all of them with DDPSOCK_KILLS=0.
TEST_P(KilledStepwise, AtAnInstruction) {
  const char* kills = getenv("DDPSOCK_KILLS");
  const bool is_all = kills != nullptr && atoi(kills) == 0;
  if (is_all) start_deadline(3'600);
  for (int i = 1; kill_one(PTRACE_SINGLESTEP, i) && !HasFailure(); i += is_all ? 1 : 97 + i / 8)
    ASSERT_LT(i, 1'000'000);
  if (!is_allowed_) GTEST_SKIP() << "no process may be traced";
}

INSTANTIATE_TEST_SUITE_P(Calls, KilledStepwise, testing::ValuesIn(kCalls),
                         [](const auto& call) { return call.param.name; });

}  // namespace
}  // namespace ddpsock::shim_tests
