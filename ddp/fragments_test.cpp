// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/fragments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ddpsock::ddp {
namespace {

using Novelty = Fragments::Novelty;

TEST(Fragments, ContiguousBytesNeedNoMemory) {
  Fragments f(0);
  uint32_t prefix = 0;
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(f.has_room_for(prefix, {i * 5, i * 5 + 5}));
    prefix = f.insert(1, prefix, {i * 5, i * 5 + 5});
  }
  EXPECT_EQ(prefix, 50u);
  EXPECT_FALSE(f.has_room_for(prefix, {51, 52}));
}

TEST(Fragments, AGapIsRememberedAndFilled) {
  Fragments f(4);
  uint32_t prefix = f.insert(1, 0, {10, 20});
  EXPECT_EQ(prefix, 0u);
  EXPECT_EQ(f.highest_end(1), 20u);
  EXPECT_EQ(f.novelty(1, prefix, {12, 18}), Novelty::kKnown);
  EXPECT_EQ(f.novelty(1, prefix, {5, 11}), Novelty::kPartial);
  EXPECT_EQ(f.novelty(1, prefix, {0, 10}), Novelty::kNew);
  EXPECT_EQ(f.novelty(2, 0, {12, 18}), Novelty::kNew) << "another message's";
  prefix = f.insert(1, prefix, {0, 10});
  EXPECT_EQ(prefix, 20u);
  EXPECT_EQ(f.size(), 0u);
  EXPECT_EQ(f.novelty(1, prefix, {3, 4}), Novelty::kKnown);
  EXPECT_EQ(f.novelty(1, prefix, {19, 21}), Novelty::kPartial);
}

TEST(Fragments, ForgetsOneMessageAndKeepsTheOthers) {
  Fragments f(8);
  for (uint32_t m = 0; m < 4; ++m) f.insert(m, 0, {10, 20});
  f.forget(2);
  EXPECT_EQ(f.size(), 3u);
  EXPECT_EQ(f.highest_end(2), 0u);
  EXPECT_EQ(f.highest_end(3), 20u);
}

TEST(Fragments, NeverHoldsMoreThanItsCapacity) {
  Fragments f(3);
  for (uint32_t i = 1; i <= 3; ++i) f.insert(1, 0, {i * 10, i * 10 + 1});
  EXPECT_FALSE(f.has_room_for(0, {90, 91}));
  EXPECT_TRUE(f.has_room_for(0, {0, 5}));
}

// Against a plain map of bytes.
TEST(Fragments, AgreesWithAByteMapOnRandomRanges) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    Fragments f(64);
    std::vector<bool> placed(64);
    uint32_t prefix = 0;
    for (int i = 0; i < 20; ++i) {
      const uint32_t begin = random() % 64;
      const uint32_t end = begin + random() % (65 - begin);
      const auto known = std::count(placed.begin() + begin, placed.begin() + end, true);
      const Novelty expected = known == end - begin ? Novelty::kKnown
                               : known == 0         ? Novelty::kNew
                                                    : Novelty::kPartial;
      ASSERT_EQ(f.novelty(7, prefix, {begin, end}), expected) << "seed " << seed;
      prefix = f.insert(7, prefix, {begin, end});
      std::fill(placed.begin() + begin, placed.begin() + end, true);
      const auto gap = std::find(placed.begin(), placed.end(), false);
      ASSERT_EQ(prefix, static_cast<uint32_t>(gap - placed.begin())) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace ddpsock::ddp
