// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/spin.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace ddpsock::base {
namespace {

TEST(Spin, SeesWhatAnotherThreadDoes) {
  std::atomic<bool> is_ready{false};
  Spin spin;
  std::thread other([&] { is_ready = true; });
  while (!spin.until([&] { return is_ready.load(); })) std::this_thread::yield();
  other.join();
}

TEST(Spin, IsNotWorthItBesideThePeerOrWithoutOne) {
  Spin spin;
  EXPECT_FALSE(spin.is_worth(0, 0)) << "never seen";
  // The thread may move between the two questions.
  bool is_ever_refused = false;
  for (int i = 0; i < 1000 && !is_ever_refused; ++i)
    is_ever_refused = !spin.is_worth(current_cpu(), current_cpu());
  EXPECT_TRUE(is_ever_refused);
  EXPECT_FALSE(spin.is_beside(0));
}

TEST(Spin, AskedInVainItSkipsMoreAndMoreWaits) {
  Spin spin;
  const uint32_t elsewhere = 100'000;
  int spins = 0;
  constexpr int kWaits = 2'000;
  for (int i = 0; i < kWaits; ++i) {
    if (!spin.is_worth(elsewhere, elsewhere)) continue;
    ++spins;
    EXPECT_FALSE(spin.until([] { return false; }));
  }
  EXPECT_GT(spins, 0);
  EXPECT_LT(spins, 20);
}

TEST(Spin, WhatFindsMayFailALittle) {
  Spin spin;
  const uint32_t elsewhere = 100'000;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(spin.until([] { return true; }));
  EXPECT_TRUE(spin.is_worth(elsewhere, elsewhere));
  EXPECT_FALSE(spin.until([] { return false; }));
  // Unless the machine took the CPU away meanwhile, which is a reason of its own to stop.
  if (spin.is_worth(elsewhere, elsewhere)) {
    EXPECT_TRUE(spin.until([] { return true; }));
  }
}

TEST(Spin, YieldingEndsAfterAFewTimes) {
  Spin spin;
  int looks = 0;
  EXPECT_FALSE(spin.by_yielding([&] {
    ++looks;
    return false;
  }));
  EXPECT_LE(looks, 2);
}

}  // namespace
}  // namespace ddpsock::base
