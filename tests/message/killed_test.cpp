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

// What the child's calls of interest are.
enum class Who : uint8_t { kSender, kReceiver, kWriter };
// Where it writes: memory of the other end's, which it reaches by itself.
constexpr size_t kPlace = 400;

void write_to(int fd, const ddp_region& there, uint64_t i, std::string_view bytes) {
  const iovec part = part_of(bytes);
  const ddp_write_work work{.cookie = 0,
                            .iov = &part,
                            .iov_count = 1,
                            .flags = 0,
                            .remote_to = there.to + i * kPlace,
                            .remote_stag = there.stag,
                            .reserved = 0};
  EXPECT_EQ(ddp_post_write(fd, &work, 1), 1);
}

std::string_view place_in(std::string_view memory, uint64_t i) {
  return memory.substr(i * kPlace, kPlace);
}
bool is_whole(std::string_view place, std::string bytes) {
  bytes.resize(kPlace, '\0');
  return place == bytes;
}
// The one that it was at may be there in part, and those before are there: all `told` at least.
void expect_written_up_to(uint64_t told, std::string_view memory) {
  uint64_t i = 0;
  while (i < kMessages && is_whole(place_in(memory, i), message_of(i))) ++i;
  EXPECT_GE(i, told);
  if (i == kMessages) return;
  const std::string bytes = message_of(i);
  const std::string_view place = place_in(memory, i);
  for (size_t at = 0; at < kPlace; ++at)
    EXPECT_TRUE(place[at] == '\0' || (at < bytes.size() && place[at] == bytes[at])) << at;
  EXPECT_EQ(memory.find_first_not_of('\0', (i + 1) * kPlace), std::string_view::npos);
}

// What a child does: a call of interest behind each mark.
[[noreturn]] void play(const Listener& listener, Who who) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotAllowed);
  raise(SIGSTOP);
  Fd fd = make_socket();
  set_mode(fd.get());
  std::string room(1000, '\0');
  for (uint64_t i = 0; i < kMessages + 1; ++i) post_recv(fd.get(), room);
  if (connect_to(fd.get(), listener) != 0) _exit(1);
  post_send(fd.get(), "first", 0, DDP_SILENT);
  if (next(fd.get(), DDP_RECEIVED).status != 0) _exit(1);
  ddp_region there;
  std::memcpy(&there, room.data(), sizeof there);
  // So that both ends look.
  for (int i = 0; i < 100; ++i) {
    ddp_completion done;
    ddp_poll(fd.get(), &done, 1);
  }
  for (uint64_t i = 0; i < kMessages; ++i) {
    const std::string bytes = message_of(i);
    asm volatile("int3");
    if (who == Who::kSender) post_send(fd.get(), bytes);
    if (who == Who::kWriter) write_to(fd.get(), there, i, bytes);
    // That it is done, or has come.
    ddp_completion done;
    while (ddp_poll(fd.get(), &done, 1) == 0) {
    }
  }
  asm volatile("int3");
  _exit(0);
}

class Killed : public testing::TestWithParam<Who> {
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
  const bool is_sender = GetParam() == Who::kSender, is_writer = GetParam() == Who::kWriter;
  const bool is_receiver = GetParam() == Who::kReceiver;
  const Listener listener = listen_on_loopback();
  std::mt19937 random(static_cast<unsigned>(GetParam()) + 1);
  size_t fds = 0;
  for (int trial = 0; trial < kills() && !HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    arm_alarm();
    const uint64_t which = random() % kMessages;
    const int steps = static_cast<int>(random() % kMostSteps);
    const pid_t child = fork();
    if (child == 0) play(listener, GetParam());
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
    ddp_region region;
    ASSERT_EQ(ddp_alloc(fd.get(), kMessages * kPlace, DDP_REMOTE_WRITE, &region), 0);
    const std::string_view memory(reinterpret_cast<const char*>(region.to), region.length);
    post_send(fd.get(), {reinterpret_cast<const char*>(&region), sizeof region}, 0, DDP_SILENT);
    ASSERT_TRUE(await(child, SIGTRAP));
    for (uint64_t i = 0; i < which; ++i) {
      if (is_receiver) post_send(fd.get(), message_of(i), 0, DDP_SILENT);
      ASSERT_TRUE(go_to_mark(child));
    }
    if (is_receiver) post_send(fd.get(), message_of(which), 0, DDP_SILENT);
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
    if (is_writer) expect_written_up_to(which, memory);
    fd.close();
    if (trial == 4) fds = open_fds();
  }
  if (fds != 0) {
    EXPECT_LE(open_fds(), fds + 2);
  }
}

std::string name_of(const testing::TestParamInfo<Who>& tested) {
  constexpr std::array kNames{"TheSender", "TheReceiver", "TheWriter"};
  return kNames[static_cast<size_t>(tested.param)];
}

INSTANTIATE_TEST_SUITE_P(Ends, Killed, testing::Values(Who::kSender, Who::kReceiver, Who::kWriter),
                         name_of);

}  // namespace
}  // namespace ddpsock::message_tests
