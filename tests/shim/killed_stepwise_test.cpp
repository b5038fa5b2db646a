// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process that shares a connection and is killed at any instruction of a call: single steps tell
// where. Who goes on reads what the dead one has not taken, sends what comes after, or is told by
// ECONNRESET that it cannot; it never waits, and never gets other bytes. It always can where the
// call had not begun, was done, or was in the kernel and might sleep there.
#include <netinet/tcp.h>
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
  size_t moves;  // bytes, of one that is done
  void (*make)(int fd);
};
void PrintTo(const Call& call, std::ostream* out) {
  *out << call.name;
}

char room[4 * kSize];

const Call kCalls[] = {
    {"Recv", false, kSize, [](int fd) { recv(fd, room, kSize, 0); }},
    {"RecvOfAPart", false, kSize / 2, [](int fd) { recv(fd, room, kSize / 2, 0); }},
    {"RecvOfAll", false, 2 * kSize, [](int fd) { recv(fd, room, 2 * kSize, MSG_WAITALL); }},
    {"RecvWithoutWaiting", false, kSize, [](int fd) { recv(fd, room, kSize, MSG_DONTWAIT); }},
    {"Peek", false, 0, [](int fd) { recv(fd, room, kSize, MSG_PEEK); }},
    {"Send", true, kSize, [](int fd) { send(fd, room, kSize, MSG_NOSIGNAL); }},
};

class KilledStepwise : public TcpTest, public testing::WithParamInterface<Call> {
 protected:
  KilledStepwise() { start_deadline(60); }

  using Step = decltype(PTRACE_SINGLESTEP);

  // What it was doing.
  enum class Moment { kAtWork, kMaySleep, kNotBegun, kDone };

  // Begins the call in a child and kills it after `count` steps.
  Moment kill_after(Step step, int count, int fd) {
    const pid_t child = fork_child();
    if (child == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotAllowed);
      if (!is_first_)
        queued_bytes(fd);  // the library has learned by then that this is another process
      kill(getpid(), SIGSTOP);
      GetParam().make(fd);
      _exit(0);
    }
    int status = 0;
    bool is_there = waitpid(child, &status, 0) == child && WIFSTOPPED(status);
    is_allowed_ = is_there || WEXITSTATUS(status) != kNotAllowed;
    if (is_there) ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
    for (int i = 0; i < count && is_there; ++i) {
      EXPECT_EQ(ptrace(step, child, nullptr, nullptr), 0);
      is_there = waitpid(child, &status, 0) == child && WIFSTOPPED(status);
    }
    if (!is_there) return Moment::kDone;
    const Moment moment = count == 0 ? Moment::kNotBegun : look_at(child);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return moment;
  }
  static Moment look_at(pid_t child) {
    __ptrace_syscall_info info{};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0) return Moment::kAtWork;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return Moment::kAtWork;
    const auto& [number, a] = info.entry;
    const bool may_sleep = (number == SYS_recvfrom && (a[3] & MSG_DONTWAIT) == 0) ||
                           (number == SYS_recvmsg && (a[2] & MSG_DONTWAIT) == 0) ||
                           (number == SYS_poll && static_cast<int>(a[2]) != 0);
    return may_sleep ? Moment::kMaySleep : Moment::kAtWork;
  }
  pid_t fork_child() const {
    if (!is_in_namespace_) return fork();
    return static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
  }

  // Whether the call was still going on.
  bool kill_one(Step step, int count) {
    Pair pair = connected_pair();
    const int client = pair.client.get(), server = pair.server.get();
    for (const int fd : {client, server}) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (is_first_) {
      set_option(server, SOL_SOCKET, SO_RCVLOWAT, kLowWater);
    } else {
      expect_alive(client, server);
    }
    memcpy(room, stream_.data(), kSize);
    if (!GetParam().is_send) send_all(client, stream_.substr(0, 2 * kSize));
    const Moment moment = kill_after(step, count, server);
    const int from = GetParam().is_send ? server : client;
    const int to = GetParam().is_send ? client : server;
    const std::string last = stream_.substr(GetParam().is_send ? kSize : 2 * kSize, kSize);
    set_timeout(server, SO_SNDTIMEO, 5'000);
    set_timeout(to, SO_RCVTIMEO, 5'000);
    const bool may_fail = is_in_ddp_mode() && moment == Moment::kAtWork;
    std::string got;
    if (send(from, last.data(), last.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(last.size())) {
      EXPECT_TRUE(may_fail && errno == ECONNRESET) << strerror(errno) << " at step " << count;
    } else if (receive_rest(to, last, got)) {
      expect_rest(got, moment);
    } else {
      EXPECT_TRUE(may_fail) << "step " << count << " of " << GetParam().name;
    }
    if (is_first_) {
      EXPECT_EQ(get_option(server, SOL_SOCKET, SO_RCVLOWAT), kLowWater) << "step " << count;
    }
    return moment != Moment::kDone;
  }
  // False: the connection has failed. Ends are for those who end it.
  static bool receive_rest(int fd, const std::string& last, std::string& got) {
    while (got.size() < last.size() || got.substr(got.size() - last.size()) != last) {
      char bytes[kSize];
      const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
      if (n <= 0) {
        EXPECT_TRUE(n < 0 && errno == ECONNRESET) << n << " " << strerror(errno);
        return false;
      }
      got.append(bytes, static_cast<size_t>(n));
    }
    return true;
  }
  void expect_rest(const std::string& got, Moment moment) const {
    const std::string all = stream_.substr(0, GetParam().is_send ? 2 * kSize : 3 * kSize);
    ASSERT_LE(got.size(), all.size());
    EXPECT_EQ(got, all.substr(all.size() - got.size()));
    const size_t before = GetParam().is_send ? kSize : all.size();
    const size_t after = GetParam().is_send ? all.size() : all.size() - GetParam().moves;
    if (moment == Moment::kNotBegun) {
      EXPECT_EQ(got.size(), before);
    } else if (moment == Moment::kDone) {
      EXPECT_EQ(got.size(), after);
    }
  }
  // In a process of this pid namespace, and in one of its own where that is allowed.
  template <typename KillAll>
  void in_each_namespace(KillAll kill_all) {
    kill_all();
    const auto child = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
    if (child == 0) _exit(0);
    if (child < 0) return;
    waitpid(child, nullptr, 0);
    is_in_namespace_ = true;
    kill_all();
  }

  void kill_at_instructions() {
    const char* kills = getenv("DDPSOCK_KILLS");
    const bool is_all = kills != nullptr && atoi(kills) == 0;
    if (is_all) start_deadline(3'600);
    in_each_namespace([&] {
      for (int i = 0; kill_one(PTRACE_SINGLESTEP, i) && !HasFailure(); i += is_all ? 1 : 97 + i / 8)
        ASSERT_LT(i, 1'000'000);
    });
    if (!is_allowed_) GTEST_SKIP() << "no process may be traced";
  }

  static constexpr int kNotAllowed = 77, kLowWater = 2;
  const std::string stream_ = pattern(3 * kSize);
  bool is_allowed_ = true, is_in_namespace_ = false, is_first_ = false;
};

TEST_P(KilledStepwise, AtEachEndOfASystemCall) {
  in_each_namespace([this] {
    for (int i = 0; kill_one(PTRACE_SYSCALL, i) && !HasFailure(); ++i) ASSERT_LT(i, 1'000);
  });
  if (!is_allowed_) GTEST_SKIP() << "no process may be traced";
}

// Some instructions; all of them with DDPSOCK_KILLS=0.
TEST_P(KilledStepwise, AtAnInstruction) {
  kill_at_instructions();
}

// The call with which the connection begins. One that decides that it is plain only looks.
TEST_P(KilledStepwise, AtAnInstructionOfTheFirst) {
  if (column() != Column::kUndecided) GTEST_SKIP() << "decided before its first call";
  is_first_ = true;
  kill_at_instructions();
}

INSTANTIATE_TEST_SUITE_P(Calls, KilledStepwise, testing::ValuesIn(kCalls),
                         [](const auto& call) { return call.param.name; });

}  // namespace
}  // namespace ddpsock::shim_tests
