// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which streams keep the memory of their large ring, and for how long: told by the pages that the
// files of their memory have.
#include <gtest/gtest.h>
#include <sys/mman.h>
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
    const Buffer bytes = pattern(n);
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
  const auto spilt_at = std::chrono::steady_clock::now();
  x.say_little();
  x.say_little();
  if (std::chrono::steady_clock::now() - spilt_at < 500ms) {
    EXPECT_GT(memory_of_connections(), kMuch - kUsual);
  }
  let_time_pass(1100);
  x.say_little();
  EXPECT_LT(memory_of_connections(), kUsual);
  x.spill_until_kept();
}

TEST(SpillKeeping, OfManyAFewKeepAndWhoEndsMakesPlace) {
  constexpr size_t kMostKept = 16;
  std::vector<std::unique_ptr<Joined>> all;
  for (size_t i = 0; i < kMostKept; ++i) {
    all.push_back(std::make_unique<Joined>());
    all.back()->spill_until_kept();
  }
  for (size_t i = 0; i < 4; ++i) {
    all.push_back(std::make_unique<Joined>());
    for (int k = 0; k < 3; ++k) all.back()->spill();
    all.back()->say_little();
  }
  EXPECT_LT(memory_of_connections(), kMostKept * kMuch + all.size() * kUsual);
  all.erase(all.begin());
  all.back()->spill_until_kept();
}

}  // namespace
}  // namespace ddpsock::engine
