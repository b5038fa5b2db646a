// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// mlockall, before and after connections are made: it keeps what the program has in memory, and is
// no reason for taking more.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "tcp.h"

namespace ddpsock::shim_tests {
namespace {

// A line of /proc/self/status, in MB.
long status_mb(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::stol(line.substr(key.size() + 1)) / 1024;
  ADD_FAILURE() << key;
  return -1;
}

bool may_lock_much() {
  rlimit limit;
  return geteuid() == 0 ||
         (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY);
}

class Untouched16Mb {
 public:
  Untouched16Mb() { EXPECT_NE(at_, MAP_FAILED); }
  ~Untouched16Mb() { munmap(at_, kSize); }

 private:
  static constexpr size_t kSize = 16 << 20;
  void* at_ = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

class Mlockall : public TcpTest {
 protected:
  static constexpr long kMostMb = 300;

  void SetUp() override {
    if (!may_lock_much()) GTEST_SKIP() << "RLIMIT_MEMLOCK is too low for mlockall";
  }
  void TearDown() override { munlockall(); }
  static void expect_all_is_locked() {
    EXPECT_LE(status_mb("VmRSS"), kMostMb);
    EXPECT_LE(status_mb("VmLck"), kMostMb);
    EXPECT_GE(status_mb("VmLck"), 1);
  }
};

// First in this file, for the library's memory is mapped by the first connection.
TEST_F(Mlockall, OfTheFutureBeforeConnections) {
  ASSERT_EQ(mlockall(MCL_CURRENT | MCL_FUTURE), 0) << strerror(errno);
  const Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  expect_all_is_locked();
}

TEST_F(Mlockall, WithConnections) {
  const Pair pair = connected_pair();
  expect_alive(pair.client.get(), pair.server.get());
  ASSERT_EQ(mlockall(MCL_CURRENT | MCL_FUTURE), 0) << strerror(errno);
  expect_alive(pair.client.get(), pair.server.get());
  expect_all_is_locked();
  const Pair next = connected_pair();
  expect_alive(next.client.get(), next.server.get());
  expect_all_is_locked();
}

TEST_F(Mlockall, GivesThePagesOfWhatIsMapped) {
  const Pair pair = connected_pair();
  const Untouched16Mb memory;
  const long before_mb = status_mb("VmRSS");
  ASSERT_EQ(mlockall(MCL_CURRENT), 0) << strerror(errno);
  EXPECT_GE(status_mb("VmRSS"), before_mb + 15);
}

TEST_F(Mlockall, OnFaultGivesNone) {
  const Pair pair = connected_pair();
  const Untouched16Mb memory;
  const long before_mb = status_mb("VmRSS");
  ASSERT_EQ(mlockall(MCL_CURRENT | MCL_ONFAULT), 0) << strerror(errno);
  EXPECT_LE(status_mb("VmRSS"), before_mb + 8);
  EXPECT_GE(status_mb("VmLck"), 16);
}

TEST_F(Mlockall, RefusesUnknownFlags) {
  const Pair pair = connected_pair();
  EXPECT_EQ(mlockall(MCL_CURRENT | 0x1000), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mlockall(0), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace ddpsock::shim_tests
