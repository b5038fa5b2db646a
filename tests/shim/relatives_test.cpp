// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Processes that share a socket and know nothing of one another: children made past every handler,
// in other pid namespaces, by several threads at once; and what one of them leaves behind that is
// killed.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// Nobody sees this: no libc call, no handler.
pid_t clone_unseen() {
#if defined(__x86_64__)
  long result = SYS_clone;
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(long{SIGCHLD}), "S"(0L), "d"(0L), "r"(r10), "r"(r8)
                   : "rcx", "r11", "memory");
  return static_cast<pid_t>(result);
#else
  return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
#endif
}
pid_t clone_by_syscall() {
  return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

class Relatives : public TcpTest {
 protected:
  // So many connections that what an earlier one left behind is used again.
  static void open_many() {
    for (int i = 0; i < 40; ++i) {
      std::vector<Pair> pairs;
      for (int k = 0; k < 16; ++k) {
        pairs.push_back(connected_pair());
        send_all(pairs.back().client.get(), "another's bytes");
      }
    }
  }
  static void expect_clean_exit(pid_t child) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
};

// The rest of a process that must not return into the test framework.
template <typename Body>
[[noreturn]] void run_and_exit(Body body) {
  body();
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

struct Way {
  const char* name;
  pid_t (*fork)();
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

class Children : public Relatives, public testing::WithParamInterface<Way> {};

TEST_P(Children, GoOnAfterTheParentsClose) {
  Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  int closed[2];
  ASSERT_EQ(pipe(closed), 0);
  const pid_t child = GetParam().fork();
  if (child == 0) {
    start_deadline();
    run_and_exit([&] {
      char byte;
      close(closed[1]);
      pair.client.close();
      EXPECT_EQ(read(closed[0], &byte, 1), 0);
      EXPECT_EQ(recv_exactly(pair.server.get(), 5), "hello");
      send_all(pair.server.get(), pattern(100'000));
    });
  }
  pair.server.close();
  open_many();
  close(closed[0]);
  close(closed[1]);
  send_all(pair.client.get(), "hello");
  EXPECT_TRUE(is_same(recv_to_end(pair.client.get()), pattern(100'000)));
  expect_clean_exit(child);
}

// As a server does that gives its sessions to their users. What the parent had read from the kernel
// for both is still there.
TEST_P(Children, GoOnAfterTheParentsCloseAsAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only the superuser becomes another";
  Pair pair = connected_pair();
  Child parent([&] {
    int closed[2];
    ASSERT_EQ(pipe(closed), 0);
    pair.client.close();
    EXPECT_EQ(recv_exactly(pair.server.get(), 5), "HELLO");
    ASSERT_EQ(setuid(65533), 0);
    const pid_t child = GetParam().fork();
    if (child == 0) {
      alarm(20);
      run_and_exit([&] {
        char byte;
        close(closed[1]);
        EXPECT_EQ(read(closed[0], &byte, 1), 0);
        EXPECT_EQ(recv_exactly(pair.server.get(), 6), " WORLD");
        send_all(pair.server.get(), pattern(10'000));
      });
    }
    pair.server.close();
    for (int fd : closed) close(fd);
    expect_clean_exit(child);
  });
  pair.server.close();
  send_all(pair.client.get(), "HELLO WORLD");
  EXPECT_TRUE(is_same(recv_to_end(pair.client.get()), pattern(10'000)));
  parent.expect_success();
}

// The child has made no call, and the parent is gone.
TEST_P(Children, GoOnAfterTheParentsEnd) {
  Pair pair = connected_pair();
  int over[2];
  ASSERT_EQ(pipe(over), 0);
  Child parent([&] {
    pair.client.close();
    send_all(pair.server.get(), "1");
    if (GetParam().fork() != 0) _exit(0);
    start_deadline();
    char byte;
    close(over[1]);
    EXPECT_EQ(read(over[0], &byte, 1), 0);
    EXPECT_EQ(recv_exactly(pair.server.get(), 5), "hello");
    send_all(pair.server.get(), pattern(50'000));
  });
  pair.server.close();
  parent.expect_success();
  open_many();
  for (int i = 0; i < 40; ++i) Child([] {}).expect_success();
  open_many();
  close(over[1]);
  EXPECT_EQ(recv_exactly(pair.client.get(), 1), "1");
  send_all(pair.client.get(), "hello");
  EXPECT_TRUE(is_same(recv_to_end(pair.client.get()), pattern(50'000)));
  close(over[0]);
}

// One that has died leaves nothing behind that another could wait for.
TEST_P(Children, LeaveNothingBehind) {
  Pair pair = connected_pair();
  for (int i = 0; i < 20; ++i) {
    const pid_t child = GetParam().fork();
    if (child == 0) {
      run_and_exit([&] { send_all(pair.client.get(), "child"); });
    }
    EXPECT_EQ(recv_exactly(pair.server.get(), 5), "child");
    expect_clean_exit(child);
    expect_alive(pair.client.get(), pair.server.get());
  }
}

constexpr std::array<Way, 4> kWays{{{"fork", fork},
                                    {"bare_fork", _Fork},
                                    {"syscall", clone_by_syscall},
                                    {"instruction", clone_unseen}}};
INSTANTIATE_TEST_SUITE_P(Ways, Children, testing::ValuesIn(kWays),
                         [](const auto& way) { return way.param.name; });

// Each child has its parent's connections for itself, also when others that were made at the same
// time have ended.
TEST_F(Relatives, SeveralThreadsForkAtOnce) {
  constexpr int kThreads = 4, kEach = 25;
  struct Member {
    Pair pair;
    pid_t pid;
    uint32_t seed;
  };
  std::array<std::vector<Member>, kThreads> members;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          Member m{connected_pair(), -1, static_cast<uint32_t>(t * kEach + i)};
          m.pid = fork();
          if (m.pid == 0) {
            start_deadline();
            run_and_exit([&] {
              EXPECT_EQ(recv_exactly(m.pair.server.get(), 5), "hello");
              send_all(m.pair.server.get(), pattern(3'000, m.seed));
            });
          }
          m.pair.server.close();
          members[static_cast<size_t>(t)].push_back(std::move(m));
        }
      });
    }
  }
  const auto serve = [](Member& m) {
    send_all(m.pair.client.get(), "hello");
    EXPECT_TRUE(is_same(recv_exactly(m.pair.client.get(), 3'000), pattern(3'000, m.seed)));
    expect_clean_exit(m.pid);
  };
  for (const size_t parity : {0u, 1u}) {
    for (auto& some : members)
      for (size_t i = parity; i < some.size(); i += 2) serve(some[i]);
    for (int i = 0; i < 20; ++i) Child([] {}).expect_success();
    open_many();
    open_many();
  }
}

// Nobody there knows our pids, and ours are others' there.
TEST_F(Relatives, AnotherPidNamespaceTakesNothing) {
  const Pair shared = connected_pair();
  send_all(shared.client.get(), pattern(10'000));
  EXPECT_TRUE(is_same(recv_exactly(shared.server.get(), 5'000), pattern(5'000)));
  int answer[2], go[2];
  ASSERT_EQ(pipe(answer), 0);
  ASSERT_EQ(pipe(go), 0);
  Child outer([&] {
    const bool may_be = unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0;
    EXPECT_EQ(write(answer[1], may_be ? "y" : "n", 1), 1);
    if (!may_be) return;
    Child inner([&] {
      char byte;
      EXPECT_EQ(read(go[0], &byte, 1), 1);
      for (int i = 0; i < 40; ++i) Child([] {}).expect_success();
      open_many();
      open_many();
    });
    inner.expect_success();
  });
  char is_allowed = 0;
  ASSERT_EQ(read(answer[0], &is_allowed, 1), 1);
  // What nobody there ever had.
  const Pair own = connected_pair();
  send_all(own.client.get(), pattern(10'000));
  EXPECT_TRUE(is_same(recv_exactly(own.server.get(), 5'000), pattern(5'000)));
  EXPECT_EQ(write(go[1], "g", 1), 1);
  outer.expect_success();
  for (const Pair* pair : {&shared, &own}) {
    EXPECT_TRUE(is_same(recv_exactly(pair->server.get(), 5'000), pattern(10'000).substr(5'000)));
    expect_alive(pair->client.get(), pair->server.get());
  }
  for (const int fd : {answer[0], answer[1], go[0], go[1]}) close(fd);
  if (is_allowed == 'n') GTEST_SKIP() << "no pid namespace to be had";
}

enum class Reaped { kNo, kYes };

class Killed : public Relatives, public testing::WithParamInterface<Reaped> {
 protected:
  Pair pair_ = connected_pair();
  const int client_ = pair_.client.get(), server_ = pair_.server.get();

  template <typename Body>
  pid_t run(Body body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(0);
    }
    return child;
  }
  // Once it sleeps in the kernel, by its own account.
  void kill_asleep(pid_t child) {
    await_asleep(child);
    kill_it(child);
  }
  void kill_it(pid_t child) {
    kill(child, SIGKILL);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info,
                     WEXITED | (GetParam() == Reaped::kNo ? WNOWAIT : 0)),
              0);
    children_.push_back(child);
  }
  ~Killed() override {
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
  }
  std::vector<pid_t> children_;
};

TEST_P(Killed, InRecvAndABlockingCallGoesOn) {
  for (int time = 0; time < 3; ++time) {
    kill_asleep(run([&] {
      char byte;
      recv(server_, &byte, 1, 0);
    }));
    send_all(client_, "bytes");
    EXPECT_EQ(recv_exactly(server_, 5), "bytes");
  }
}

TEST_P(Killed, InRecvAndANonblockingCallGoesOn) {
  kill_asleep(run([&] {
    char byte;
    recv(server_, &byte, 1, 0);
  }));
  send_all(client_, "bytes");
  char bytes[5];
  ssize_t n = -1;
  for (const int64_t end = now_ms() + 5'000; n < 0 && now_ms() < end;) {
    pollfd readable{server_, POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 5'000), 1);
    n = recv(server_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0) {
      ASSERT_EQ(errno, EAGAIN);
    }
  }
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(std::max<ssize_t>(n, 0))), "bytes");
}

TEST_P(Killed, InPollAndAllGoesOn) {
  kill_asleep(run([&] {
    pollfd readable{server_, POLLIN, 0};
    poll(&readable, 1, -1);
  }));
  expect_alive(client_, server_);
}

TEST_P(Killed, InSendAndTheNextGoesOn) {
  kill_asleep(run([&] {
    const std::string much = pattern(64'000);
    for (;;)
      if (send(client_, much.data(), much.size(), 0) < 0) _exit(1);
  }));
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

INSTANTIATE_TEST_SUITE_P(Relatives, Killed, testing::Values(Reaped::kNo, Reaped::kYes),
                         [](const auto& reaped) {
                           return reaped.param == Reaped::kYes ? "Reaped" : "Zombie";
                         });

// At any instruction: the survivor goes on where the kernel stands, or is told that it cannot.
TEST_F(Relatives, KilledAnywhereStopsNobody) {
  const char* wanted = getenv("DDPSOCK_KILLS");
  const int kills = wanted != nullptr ? atoi(wanted) : 60;
  std::mt19937 random(7);
  start_deadline(static_cast<unsigned>(20 + kills / 20));
  constexpr size_t kSize = 64;
  for (int i = 0; i < kills; ++i) {
    Pair pair = connected_pair();
    const int client = pair.client.get(), server = pair.server.get();
    set_timeout(server, SO_RCVTIMEO, 10'000);
    const pid_t child = fork();
    if (child == 0) {
      char message[kSize];
      for (;;)
        if (recv(server, message, kSize, MSG_WAITALL) <= 0) _exit(0);
    }
    uint32_t number = 0;
    char message[kSize] = {};
    const auto send_one = [&] {
      memcpy(message, &++number, sizeof number);
      memset(message + sizeof number, static_cast<int>(number % 251), kSize - sizeof number);
      return send(client, message, kSize, MSG_NOSIGNAL) == ssize_t{kSize};
    };
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::microseconds(random_size(random, 100, 3'000));
    while (std::chrono::steady_clock::now() < end) ASSERT_TRUE(send_one());
    // The survivor reads while the other dies, and there is something to read afterwards.
    std::string told;
    std::atomic<uint32_t> last_number{UINT32_MAX};
    std::jthread killer([&] {
      kill(child, SIGKILL);
      siginfo_t info;
      waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
      last_number = number + 1;
      send_one();
    });
    for (uint32_t last = 0; last < last_number && told.empty();) {
      char got[kSize];
      const ssize_t n = recv(server, got, kSize, MSG_WAITALL);
      if (n != ssize_t{kSize}) {
        ASSERT_NE(errno, EAGAIN) << "round " << i;
        told = std::to_string(n) + " " + strerror(errno);
        break;
      }
      uint32_t here;
      memcpy(&here, got, sizeof here);
      ASSERT_GT(here, last);
      for (size_t k = sizeof here; k < kSize; ++k)
        ASSERT_EQ(static_cast<uint8_t>(got[k]), here % 251) << "round " << i;
      last = here;
    }
    EXPECT_TRUE(told.empty() || is_in_ddp_mode()) << "round " << i << ", " << told;
    waitpid(child, nullptr, 0);
  }
}

size_t address_space() {
  FILE* file = fopen("/proc/self/statm", "r");
  size_t pages = 0;
  if (file == nullptr) return 0;
  EXPECT_EQ(fscanf(file, "%zu", &pages), 1);
  fclose(file);
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What is reserved and not used must leave a program that limits itself its memory.
TEST_F(Relatives, AddressSpaceMayBeLimitedLater) {
  Child child([] {
    const rlim_t most = address_space() + (250 << 20);
    const Pair first = connected_pair();
    expect_alive(first.client.get(), first.server.get());
    const rlimit limit{most, most};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    void* memory = malloc(100 << 20);
    EXPECT_NE(memory, nullptr);
    free(memory);
    const Pair second = connected_pair();
    expect_alive(second.client.get(), second.server.get());
    expect_alive(first.client.get(), first.server.get());
  });
  child.expect_success();
}

}  // namespace
}  // namespace ddpsock::shim_tests
