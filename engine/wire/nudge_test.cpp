// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wire/nudge.h"

#include <gtest/gtest.h>

namespace ddpsock::engine {
namespace {

constexpr Time at(int64_t ms) {
  return Time{} + Duration::from_ms(ms);
}

TEST(Nudge, ComesThreeTimesEachLater) {
  Nudge nudge;
  nudge.configure(Duration::from_ms(10));
  EXPECT_EQ(nudge.due(), kNever);
  nudge.sent(at(0));
  nudge.sent(at(5));  // the first counts
  EXPECT_FALSE(nudge.take(at(9)));
  EXPECT_TRUE(nudge.take(at(10)));
  EXPECT_FALSE(nudge.take(at(1'000)));
  nudge.sent(at(10));
  EXPECT_EQ(nudge.due(), at(50));
  EXPECT_TRUE(nudge.take(at(50)));
  nudge.sent(at(50));
  EXPECT_EQ(nudge.due(), at(210));
  EXPECT_TRUE(nudge.take(at(210)));
  nudge.sent(at(210));
  EXPECT_EQ(nudge.due(), kNever);
}

TEST(Nudge, EndsWithTheFirstAnswer) {
  Nudge nudge;
  nudge.configure(Duration::from_ms(10));
  nudge.sent(at(0));
  nudge.heard();
  EXPECT_EQ(nudge.due(), kNever);
  nudge.sent(at(1));
  EXPECT_EQ(nudge.due(), kNever);
}

TEST(Nudge, WaitsForWhoLooksWhetherThePeerHasSpoken) {
  Nudge nudge;
  nudge.configure(Duration::from_ms(10));
  nudge.sent(at(0));
  nudge.put_off(at(5));
  EXPECT_EQ(nudge.due(), at(10)) << "not yet due";
  nudge.put_off(at(12));
  EXPECT_FALSE(nudge.take(at(12)));
  EXPECT_GT(nudge.due(), at(12));
  EXPECT_LE(nudge.due(), at(14));
  EXPECT_TRUE(nudge.take(at(14)));
}

TEST(Nudge, IsOffUnlessAskedFor) {
  Nudge nudge;
  nudge.sent(at(0));
  EXPECT_EQ(nudge.due(), kNever);
  nudge.configure({});
  nudge.sent(at(0));
  EXPECT_EQ(nudge.due(), kNever);
}

}  // namespace
}  // namespace ddpsock::engine
