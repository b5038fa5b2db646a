// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A peer in shared memory that is killed in the middle of a call, some instructions behind its
// beginning. What it was told to be done is here, whole and in order; and the end comes soon. More
// with DDPSOCK_KILLS=5000.
#include <dirent.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "ends.h"

namespace ddpsock::message_tests {
namespace {

constexpr uint64_t kMessages = 24;
constexpr int kMostSteps = 1200, kNotAllowed = 77;

int kills() {
  const char* wanted = std::getenv("DDPSOCK_KILLS");
  return wanted != nullptr ? std::atoi(wanted) : 60;
}

std::string message_of(uint64_t i) {
  std::string bytes(8 + i % 3 * 100, static_cast<char>('a' + i));
  std::memcpy(bytes.data(), &i, sizeof i);
  return bytes;
}

size_t open_fds() {
  DIR* dir = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

// What a child does: a call of interest behind each mark.
[[noreturn]] void play(const Listener& listener, bool is_sender) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotAllowed);
  raise(SIGSTOP);
  Fd fd = make_socket();
  set_mode(fd.get());
  std::string room(1000, '\0');
  for (uint64_t i = 0; i < kMessages + 1; ++i) post_recv(fd.get(), room);
  if (connect_to(fd.get(), listener) != 0) _exit(1);
  post_send(fd.get(), "first", 0, DDP_SILENT);
  if (next(fd.get(), DDP_RECEIVED).status != 0) _exit(1);
  // So that both ends look.
  for (int i = 0; i < 100; ++i) {
    ddp_completion done;
    ddp_poll(fd.get(), &done, 1);
  }
  for (uint64_t i = 0; i < kMessages; ++i) {
    const std::string bytes = message_of(i);
    asm volatile("int3");
    if (is_sender) {
      post_send(fd.get(), bytes, 0, DDP_SILENT);
    } else {
      ddp_completion done;
      while (ddp_poll(fd.get(), &done, 1) == 0) {
      }
    }
  }
  asm volatile("int3");
  _exit(0);
}

class Killed : public testing::TestWithParam<bool> {
 protected:
  Killed() { arm_alarm(); }

  // Of the child: it stands still afterwards. False: it has ended.
  static bool await(pid_t child, int signal) {
    int status = 0;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
      if (WSTOPSIG(status) == signal) return true;
      ptrace(PTRACE_CONT, child, nullptr, WSTOPSIG(status));
    }
    is_allowed_ = !WIFEXITED(status) || WEXITSTATUS(status) != kNotAllowed;
    return false;
  }
  static bool go_to_mark(pid_t child) {
    ptrace(PTRACE_CONT, child, nullptr, nullptr);
    return await(child, SIGTRAP);
  }
  static inline bool is_allowed_ = true;
};

TEST_P(Killed, InTheMiddleOfACall) {
  const bool is_sender = GetParam();
  const Listener listener = listen_on_loopback();
  std::mt19937 random(is_sender ? 1 : 2);
  size_t fds = 0;
  for (int trial = 0; trial < kills() && !HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    arm_alarm();
    const uint64_t which = random() % kMessages;
    const int steps = static_cast<int>(random() % kMostSteps);
    const pid_t child = fork();
    if (child == 0) play(listener, is_sender);
    if (!await(child, SIGSTOP)) {
      if (!is_allowed_) GTEST_SKIP() << "no process may be traced";
      FAIL() << "the child has ended";
    }
    ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL);
    ptrace(PTRACE_CONT, child, nullptr, nullptr);
    Fd fd(accept(listener.fd.get(), nullptr, nullptr));
    std::array<std::string, kMessages + 1> rooms;
    for (std::string& room : rooms) {
      room.assign(1000, '\0');
      post_recv(fd.get(), room);
    }
    ASSERT_EQ(ddp_establish(fd.get(), kPatienceMs), 0);
    ASSERT_EQ(next(fd.get(), DDP_RECEIVED).bytes, 5u);
    post_send(fd.get(), "go", 0, DDP_SILENT);
    ASSERT_TRUE(await(child, SIGTRAP));
    for (uint64_t i = 0; i < which; ++i) {
      if (!is_sender) post_send(fd.get(), message_of(i), 0, DDP_SILENT);
      ASSERT_TRUE(go_to_mark(child));
    }
    if (!is_sender) post_send(fd.get(), message_of(which), 0, DDP_SILENT);
    bool is_there = true;
    for (int i = 0; i < steps && is_there; ++i) {
      ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
      is_there = await(child, SIGTRAP);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    uint64_t received = 0;
    for (;;) {
      ddp_completion done{};
      ASSERT_EQ(ddp_wait(fd.get(), &done, 1, kPatienceMs), 1) << "it does not end";
      if (done.kind == DDP_ENDED) break;
      if (done.kind != DDP_RECEIVED || done.status != 0) continue;
      const std::string expected = message_of(received);
      EXPECT_EQ(rooms[received + 1].substr(0, done.bytes), expected);
      EXPECT_EQ(rooms[received + 1].find_first_not_of('\0', expected.size()), std::string::npos);
      ++received;
    }
    // The one that it was sending may be there.
    EXPECT_GE(received, is_sender ? which : 0);
    EXPECT_LE(received, is_sender ? which + 1 : 0);
    fd.close();
    if (trial == 4) fds = open_fds();
  }
  if (fds != 0) {
    EXPECT_LE(open_fds(), fds + 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Ends, Killed, testing::Values(true, false), [](const auto& who) {
  return std::string(who.param ? "TheSender" : "TheReceiver");
});

}  // namespace
}  // namespace ddpsock::message_tests
