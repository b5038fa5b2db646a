// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which streams keep the memory of their large ring, and for how long: told by the pages that the
// files of their memory have.
#include "stream/spill_keeping.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <vector>

#include "stream/stream_testing.h"

namespace ddpsock::engine {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMegabyte = 1 << 20;
constexpr size_t kMuch = 3 * kMegabyte;
// Of a connection without what it keeps: its small rings, its own pages.
constexpr size_t kUsual = kMegabyte;

// Both ends are of this process, and each has the memory mapped.
size_t memory_of_connections() {
  size_t pages = 0;
  for (const auto& [from, to] : mapped_segments()) {
    std::vector<unsigned char> is_there((to - from) / 4096);
    EXPECT_EQ(mincore(reinterpret_cast<void*>(from), to - from, is_there.data()), 0);
    for (const unsigned char page : is_there) pages += page & 1;
  }
  return pages * 4096 / 2;
}

struct Joined {
  Joined() {
    for (size_t n = 1; n <= 3; ++n) pass(n % 2 == 1 ? a : b, n % 2 == 1 ? b : a, n);
    EXPECT_STREQ(a.s->status().engine, "shm") << a.s->status().memory;
  }
  static void pass(End& from, End& to, size_t n) {
    static const Buffer much = pattern(kMuch);
    const Buffer bytes = n == kMuch ? much : pattern(n);
    EXPECT_EQ(from.send(bytes, MSG_DONTWAIT).count, static_cast<ssize_t>(n));
    EXPECT_EQ(to.recv(n, MSG_WAITALL), bytes);
  }
  void spill() { pass(a, b, kMuch); }
  void say_little() { pass(a, b, 1); }
  // As often as it takes on a machine that is busy.
  void spill_until_kept() {
    const size_t before = memory_of_connections();
    for (int i = 0; i < 200 && memory_of_connections() < before + kMuch - kUsual; ++i) {
      spill();
      spill();
      say_little();
    }
    EXPECT_GE(memory_of_connections(), before + kMuch - kUsual);
  }

  TcpPair tcp;
  MemoryEnd a{tcp.client, Role::kInitiator}, b{tcp.server, Role::kResponder};
};

void let_time_pass(int ms) {
  usleep(static_cast<useconds_t>(ms) * 1000);
}

TEST(SpillKeeping, OneSpillKeepsNothing) {
  Joined x;
  x.spill();
  x.say_little();
  EXPECT_LT(memory_of_connections(), kUsual);
}

TEST(SpillKeeping, OneNowAndThenKeepsNothing) {
  Joined x;
  for (int i = 0; i < 3; ++i) {
    x.spill();
    x.say_little();
    let_time_pass(130);
  }
  EXPECT_LT(memory_of_connections(), kUsual);
}

TEST(SpillKeeping, OneAfterAnotherKeepsUntilItIsCalm) {
  Joined x;
  x.spill_until_kept();
  let_time_pass(1100);
  x.say_little();
  EXPECT_LT(memory_of_connections(), kUsual);
  x.spill_until_kept();
}

// Also where nothing has been said since.
TEST(SpillKeeping, TheFirstMessageLetsGo) {
  Joined x;
  x.spill_until_kept();
  x.spill();
  EXPECT_GT(memory_of_connections(), kMuch - kUsual);
  let_time_pass(1100);
  x.say_little();
  EXPECT_LT(memory_of_connections(), kUsual);
}

// A second of one spill is not one without.
TEST(SpillKeeping, OneThatLastsIsNotCalm) {
  Joined x;
  x.spill_until_kept();
  const Buffer part = pattern(kMegabyte);
  size_t unread = 0;
  auto last = std::chrono::steady_clock::now();
  for (const auto end = last + 1200ms; last < end; let_time_pass(1)) {
    last = std::chrono::steady_clock::now();
    const Io io = x.a.send(part, MSG_DONTWAIT);
    unread += static_cast<size_t>(std::max<ssize_t>(io.count, 0));
    while (unread > kMegabyte) unread -= x.b.recv(kMegabyte / 2).size();
  }
  while (unread > 0) unread -= x.b.recv(unread).size();
  x.say_little();
  const size_t memory = memory_of_connections();
  // A machine that took so long cannot tell.
  if (std::chrono::steady_clock::now() - last > 900ms) GTEST_SKIP() << "slow";
  EXPECT_GT(memory, kUsual);
}

// A reader that never gets to the end, so that the second one does not begin.
TEST(SpillKeeping, OneThatGoesRoundKeeps) {
  Joined x;
  size_t unread = 0;
  for (int i = 0; i < 20; ++i) {
    const Io io = x.a.send(pattern(kMegabyte), MSG_DONTWAIT);
    unread += static_cast<size_t>(std::max<ssize_t>(io.count, 0));
    while (unread > kMegabyte) unread -= x.b.recv(kMegabyte / 2).size();
  }
  EXPECT_GT(memory_of_connections(), kMuch);
  while (unread > 0) unread -= x.b.recv(unread).size();
}

TEST(SpillKeeping, OfManyAFewKeepAndWhoEndsMakesPlace) {
  std::vector<std::unique_ptr<Joined>> all;
  for (int i = 0; i < kMostSpillKeepers; ++i) {
    all.push_back(std::make_unique<Joined>());
    all.back()->spill_until_kept();
  }
  all.push_back(std::make_unique<Joined>());
  const size_t before = memory_of_connections();
  for (int i = 0; i < 5; ++i) all.back()->spill();
  all.back()->say_little();
  EXPECT_LT(memory_of_connections(), before + kUsual);
  all.erase(all.begin());
  all.back()->spill_until_kept();
}

// What was read is given back at once, the rest as it is read.
TEST(SpillKeeping, WhoSendsNoMoreKeepsNothing) {
  for (const size_t unread : {size_t{0}, 2 * kMegabyte}) {
    Joined x;
    x.spill_until_kept();
    EXPECT_EQ(x.a.send(Buffer(unread + 1), MSG_DONTWAIT).count, static_cast<ssize_t>(unread + 1));
    EXPECT_TRUE(x.a.s->shutdown(x.a.fd, SHUT_WR).is_ok());
    EXPECT_LT(memory_of_connections(), unread + kUsual);
    EXPECT_EQ(x.b.recv(unread + 1, MSG_WAITALL).size(), unread + 1);
    EXPECT_TRUE(x.b.recv(1).empty());
    EXPECT_LT(memory_of_connections(), kUsual) << unread;
  }
}

TEST(SpillKeeping, NorWhoCloses) {
  Joined x;
  x.spill_until_kept();
  EXPECT_EQ(x.a.send(Buffer(kMegabyte), MSG_DONTWAIT).count, static_cast<ssize_t>(kMegabyte));
  x.a.release();
  x.tcp.close_client();
  EXPECT_EQ(x.b.recv(kMegabyte, MSG_WAITALL).size(), kMegabyte);
  EXPECT_TRUE(x.b.recv(1).empty());
  // Mapped by one end only.
  EXPECT_LT(2 * memory_of_connections(), kUsual);
}

TEST(SpillKeeping, WhoLeavesMakesPlace) {
  std::vector<std::unique_ptr<Joined>> all;
  for (int i = 0; i < kMostSpillKeepers; ++i) {
    all.push_back(std::make_unique<Joined>());
    all.back()->spill_until_kept();
  }
  all.front()->a.s->leave_memory(all.front()->a.fd);
  all.push_back(std::make_unique<Joined>());
  all.back()->spill_until_kept();
}

// Where its reader cannot run before it sleeps a writer that may wait does not, once it keeps.
TEST(SpillKeeping, AWriterBesideItsReaderDoesNotSleep) {
  cpu_set_t usual, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof usual, &usual), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  Joined x;
  x.spill_until_kept();
  const auto sleeps = [] {
    rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  const long before = sleeps();
  EXPECT_EQ(x.a.send(pattern(kMuch)).count, static_cast<ssize_t>(kMuch));
  EXPECT_EQ(sleeps(), before);
  EXPECT_EQ(x.b.recv(kMuch, MSG_WAITALL), pattern(kMuch));
  sched_setaffinity(0, sizeof usual, &usual);
}

}  // namespace
}  // namespace ddpsock::engine
