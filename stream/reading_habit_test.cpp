// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/reading_habit.h"

#include <gtest/gtest.h>

namespace ddpsock::engine {
namespace {

constexpr uint32_t kMe = 7, kOther = 8;

TEST(ReadingHabit, AnEventLoopThatReadsToTheEndIsNotTakenForASpinner) {
  ReadingHabit habit;
  for (int event = 0; event < 100; ++event) {
    habit.on_prompt(kMe);
    habit.on_empty(kMe, false);
    ASSERT_FALSE(habit.waits_in_calls(kMe)) << event;
  }
}

TEST(ReadingHabit, EmptyCallsInARowConvince) {
  ReadingHabit habit;
  for (int call = 0; call < 8; ++call) habit.on_empty(kMe, false);
  EXPECT_FALSE(habit.waits_in_calls(kMe));
  habit.on_empty(kMe, false);
  EXPECT_TRUE(habit.waits_in_calls(kMe));
  EXPECT_FALSE(habit.waits_in_calls(kOther));
}

TEST(ReadingHabit, SoDoFewBetweenMessages) {
  ReadingHabit habit;
  for (int message = 0; message < 4; ++message) {
    for (int call = 0; call < 4; ++call) habit.on_empty(kMe, false);
    habit.on_prompt(kMe);
  }
  EXPECT_TRUE(habit.waits_in_calls(kMe));
}

TEST(ReadingHabit, MessagesThatAreThereInTimeTellNothing) {
  ReadingHabit habit;
  habit.on_empty(kMe, true);
  for (int call = 0; call < 100'000; ++call) habit.on_prompt(kMe);
  EXPECT_TRUE(habit.waits_in_calls(kMe));
}

// Empty calls with a message before each, until the habit is gone.
int single_ones_until_unlearnt(ReadingHabit& habit) {
  int single = 0;
  while (habit.waits_in_calls(kMe) && single < 2000) {
    habit.on_prompt(kMe);
    habit.on_empty(kMe, false);
    ++single;
  }
  return single;
}

TEST(ReadingHabit, OneCallThatSpanConvincesForAThousandEvents) {
  ReadingHabit habit;
  habit.on_empty(kMe, true);
  EXPECT_EQ(single_ones_until_unlearnt(habit), 1017);
}

TEST(ReadingHabit, ManyThatDidNotSpinConvinceForAFew) {
  ReadingHabit habit;
  for (int call = 0; call < 100; ++call) habit.on_empty(kMe, false);
  EXPECT_EQ(single_ones_until_unlearnt(habit), 9);
}

TEST(ReadingHabit, WhatAnotherThreadsCallFindsIsNotTheReaders) {
  ReadingHabit habit;
  for (int call = 0; call < 9; ++call) {
    habit.on_empty(kMe, false);
    habit.on_prompt(kOther);
  }
  EXPECT_TRUE(habit.waits_in_calls(kMe));
}

TEST(ReadingHabit, WhoAsksOursPollsUntilItReadsOnWithoutAsking) {
  ReadingHabit habit;
  EXPECT_FALSE(habit.polls(kMe));
  for (int round = 0; round < 100; ++round) {
    habit.on_own_poller(kMe);
    for (int call = 0; call < 15; ++call) habit.on_prompt(kMe);
    ASSERT_TRUE(habit.polls(kMe)) << round;
    ASSERT_FALSE(habit.polls(kOther)) << round;
  }
  habit.on_prompt(kMe);
  EXPECT_FALSE(habit.polls(kMe));
  habit.on_own_poller(kOther);
  EXPECT_FALSE(habit.polls(kMe));
  EXPECT_TRUE(habit.polls(kOther));
}

TEST(ReadingHabit, WhoAsksOursDoesNotWaitInCalls) {
  ReadingHabit habit;
  habit.on_empty(kMe, true);
  habit.on_own_poller(kMe);
  EXPECT_FALSE(habit.waits_in_calls(kMe));
}

TEST(ReadingHabit, APollerOrAnotherReaderEndsIt) {
  ReadingHabit habit;
  habit.on_empty(kMe, true);
  habit.on_poller();
  EXPECT_FALSE(habit.waits_in_calls(kMe));
  habit.on_empty(kMe, true);
  habit.on_empty(kOther, false);
  EXPECT_FALSE(habit.waits_in_calls(kMe));
  EXPECT_FALSE(habit.waits_in_calls(kOther));
}

TEST(ReadingHabit, LingersLessOftenTheMoreItFails) {
  ReadingHabit habit;
  habit.on_empty(kMe, true);
  int lingered = 0;
  for (int call = 0; call < 160; ++call)
    if (habit.may_linger(kMe)) {
      ++lingered;
      habit.on_lingered(false);
    }
  EXPECT_LE(lingered, 14);
  EXPECT_GE(lingered, 10);
  habit.on_lingered(true);
  EXPECT_TRUE(habit.may_linger(kMe));
}

}  // namespace
}  // namespace ddpsock::engine
