// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls that never return: a signal handler jumps out of them.
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

sigjmp_buf way_out;
extern "C" void jump_out(int) {
  siglongjmp(way_out, 1);
}

class Jumps : public TcpTest {
 protected:
  Jumps() {
    struct sigaction action{};
    action.sa_handler = jump_out;
    sigaction(SIGUSR1, &action, &before_);
  }
  ~Jumps() override { sigaction(SIGUSR1, &before_, nullptr); }

  // Runs `call` in this thread, which is jumped out of once it sleeps.
  template <typename Call>
  void leave(Call call) {
    const pid_t me = gettid();
    const pthread_t self = pthread_self();
    std::jthread interrupter([=] {
      await_asleep(me);
      pthread_kill(self, SIGUSR1);
    });
    if (sigsetjmp(way_out, 1) == 0) {
      call();
      ADD_FAILURE() << "the call has returned";
    }
  }

  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get(), server_ = pair_.server.get();
  struct sigaction before_{};
};

// Its memory is this process's, and so is whatever it leaves there.
[[gnu::noinline]] void kill_vfork_child_in(ssize_t (*call)(int fd), int fd) {
  static std::atomic<pid_t> child;
  child = 0;
  std::jthread killer([] {
    while (child == 0) sched_yield();
    await_asleep(child);
    EXPECT_EQ(kill(child, SIGKILL), 0);
  });
  const pid_t id = vfork();
  if (id == 0) {
    child = getpid();
    call(fd);
    _exit(1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(id, &status, 0), id);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(Jumps, AfterAVforkChildWasKilledInRecv) {
  kill_vfork_child_in(
      [](int fd) {
        char byte;
        return recv(fd, &byte, 1, 0);
      },
      server_);
  expect_alive(client_, server_);
  leave([&] {
    char byte;
    recv(server_, &byte, 1, 0);
  });
  expect_alive(client_, server_);
  pair_.client.close();
  expect_end_of_stream(server_);
}

TEST_F(Jumps, AfterAVforkChildWasKilledInSend) {
  static const std::string bytes = pattern(50'000'000);
  kill_vfork_child_in([](int fd) { return send(fd, bytes.data(), bytes.size(), 0); }, client_);
  leave([&] {
    char byte;
    recv(client_, &byte, 1, 0);
  });
  // As much of it as there was room for, in order.
  constexpr std::string_view kEnd = "the end of what was sent";
  std::jthread writer([&] { send_all(client_, kEnd); });
  std::string got;
  while (!got.ends_with(kEnd)) {
    char part[65536];
    const ssize_t n = recv(server_, part, sizeof part, 0);
    ASSERT_GT(n, 0);
    got.append(part, size_t(n));
  }
  got.resize(got.size() - kEnd.size());
  EXPECT_TRUE(is_same(got, std::string_view(bytes).substr(0, got.size())));
  expect_alive(client_, server_);
}

TEST_F(Jumps, OutOfRecvAndTheNextCallReads) {
  for (int time = 0; time < 3; ++time) {
    leave([&] {
      char byte;
      recv(server_, &byte, 1, 0);
    });
    send_all(client_, "bytes");
    EXPECT_EQ(recv_exactly(server_, 5), "bytes");
  }
  // And another thread, and a child.
  leave([&] {
    char byte;
    read(server_, &byte, 1);
  });
  send_all(client_, "morewords");
  std::thread([&] { EXPECT_EQ(recv_exactly(server_, 4), "more"); }).join();
  Child([&] { EXPECT_EQ(recv_exactly(server_, 5), "words"); }).expect_success();
  expect_alive(client_, server_);
}

TEST_F(Jumps, OutOfALookAndTheNextCallReads) {
  leave([&] {
    char bytes[8];
    recv(server_, bytes, sizeof bytes, MSG_PEEK);
  });
  send_all(client_, "seen");
  leave([&] {
    char bytes[8];
    recv(server_, bytes, sizeof bytes, MSG_PEEK | MSG_WAITALL);
  });
  EXPECT_EQ(recv_exactly(server_, 4), "seen");
  expect_alive(client_, server_);
}

TEST_F(Jumps, OutOfWriteAndTheNextCallWrites) {
  const std::string much = pattern(32'000'000);
  leave([&] { write(client_, much.data(), much.size()); });
  std::jthread reader([&] {
    std::string got;
    while (got.size() < 4 || got.substr(got.size() - 4) != "last") {
      char bytes[16'384];
      const ssize_t n = recv(server_, bytes, sizeof bytes, 0);
      ASSERT_GT(n, 0) << strerror(errno);
      got.append(bytes, static_cast<size_t>(n));
    }
  });
  send_all(client_, "last");
}

TEST_F(Jumps, TheDescriptorStillClosesForGood) {
  leave([&] {
    char byte;
    recv(server_, &byte, 1, 0);
  });
  pair_.server.close();
  expect_end_of_stream(client_);
}

extern "C" void jump_out_without_descriptors(int) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &limit);
  siglongjmp(way_out, 1);
}

TEST_F(Jumps, WhereNoDescriptorIsFree) {
  struct sigaction action{};
  action.sa_handler = jump_out_without_descriptors;
  sigaction(SIGUSR1, &action, nullptr);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  leave([&] {
    char byte;
    recv(server_, &byte, 1, 0);
  });
  setrlimit(RLIMIT_NOFILE, &limit);
  send_all(client_, "bytes");
  std::thread([&] { EXPECT_EQ(recv_exactly(server_, 5), "bytes"); }).join();
  expect_alive(client_, server_);
}

TEST_F(Jumps, OutOfARawSystemCallAndTheThreadIsCancelledAsBefore) {
  leave([&] {
    char byte;
    syscall(SYS_read, server_, &byte, size_t{1});
  });
  int before = -1;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
  EXPECT_EQ(before, PTHREAD_CANCEL_ENABLE);
  expect_alive(client_, server_);
}

// Single steps: the processor traps after each instruction while this flag is set.
[[gnu::noinline]] void set_trap_flag() {
  asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
}
[[gnu::noinline]] void clear_trap_flag() {
  asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}
int steps_left = 0;
extern "C" void count_step(int) {
  if (steps_left-- == 0) siglongjmp(way_out, 1);
}

// False: it was left behind so many instructions.
bool has_read_within(int steps, int fd) {
  steps_left = steps;
  if (sigsetjmp(way_out, 1) != 0) return false;
  char byte;
  set_trap_flag();
  recv(fd, &byte, 1, MSG_DONTWAIT);
  clear_trap_flag();
  return true;
}

// Where it is left in the middle, which is in one piece, the connection may fail; but nobody waits
// for who has gone on.
TEST_F(Jumps, BehindAnyInstructionStopNobodyElse) {
  if (column() == Column::kOneSided)
    GTEST_SKIP() << "making a connection for each instruction takes too long";
  start_deadline(100);
  struct sigaction action{}, before{};
  action.sa_handler = count_step;
  sigaction(SIGTRAP, &action, &before);
  bool has_returned = false, is_in_the_middle = false, is_through = false;
  // Some instructions; all of them with DDPSOCK_KILLS=0.
  const char* kills = getenv("DDPSOCK_KILLS");
  const int stride = kills != nullptr && atoi(kills) == 0 ? 1 : 13;
  if (stride == 1) start_deadline(3'600);
  for (int steps = 0; !has_returned; steps += stride) {
    const Pair pair = connected_pair();
    const int from = pair.client.get(), to = pair.server.get();
    send_all(from, "1");
    EXPECT_EQ(recv_exactly(to, 1), "1");
    has_returned = has_read_within(steps, to);
    const bool may_fail = is_in_ddp_mode() && steps > 0 && !has_returned;
    std::thread([&] {
      char byte = 0;
      send(from, "2", 1, MSG_NOSIGNAL);
      pollfd ready{to, POLLIN, 0};
      poll(&ready, 1, -1);
      const ssize_t n = recv(to, &byte, 1, MSG_DONTWAIT);
      const bool has_failed = n == -1 && errno == ECONNRESET;
      EXPECT_TRUE((n == 1 && byte == '2') || (may_fail && has_failed))
          << n << " " << strerror(errno) << " behind " << steps << " steps";
      if (has_failed) {
        EXPECT_FALSE(is_through) << "again behind " << steps << " steps";
        is_in_the_middle = true;
      }
      is_through = is_in_the_middle && !has_failed;
    }).join();
  }
  sigaction(SIGTRAP, &before, nullptr);
}

// A handler may jump within itself; the call below it goes on.
extern "C" void jump_within(int) {
  sigjmp_buf here;
  if (sigsetjmp(here, 0) == 0) siglongjmp(here, 1);
}

TEST_F(Jumps, WithinAHandlerEndNoCall) {
  alignas(16) static char other_stack[65'536];
  for (const bool has_own_stack : {false, true}) {
    stack_t stack{};
    stack.ss_sp = other_stack;
    stack.ss_size = sizeof other_stack;
    stack.ss_flags = has_own_stack ? 0 : SS_DISABLE;
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
    struct sigaction action{};
    action.sa_handler = jump_within;
    action.sa_flags = SA_RESTART | (has_own_stack ? SA_ONSTACK : 0);
    sigaction(SIGUSR2, &action, nullptr);
    const pthread_t self = pthread_self();
    std::jthread peer([=, this] {
      for (int i = 0; i < 20; ++i) pthread_kill(self, SIGUSR2);
      send_all(client_, pattern(100));
    });
    EXPECT_TRUE(is_same(recv_exactly(server_, 100), pattern(100)));
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
  }
  expect_alive(client_, server_);
}

}  // namespace
}  // namespace ddpsock::shim_tests
