// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/completion_queue.h"

#include <gtest/gtest.h>

#include <array>

namespace ddpsock::rdmap {
namespace {

Completion completion(uint64_t id, bool is_solicited = false) {
  Completion c;
  c.id = id;
  c.is_solicited = is_solicited;
  return c;
}

TEST(CompletionQueue, ReservationsNeverExceedTheDepth) {
  CompletionQueue cq(2);
  ASSERT_TRUE(cq.has_memory());
  EXPECT_TRUE(cq.reserve());
  EXPECT_TRUE(cq.reserve());
  EXPECT_FALSE(cq.reserve());
  cq.push(completion(1));
  EXPECT_FALSE(cq.reserve()) << "its slot is taken until it is polled";
  cq.release();
  EXPECT_TRUE(cq.reserve());
  std::array<Completion, 4> out;
  EXPECT_EQ(cq.poll(out), 1u);
  EXPECT_EQ(out[0].id, 1u);
  EXPECT_TRUE(cq.reserve());
}

TEST(CompletionQueue, KeepsOrderThroughWrapping) {
  CompletionQueue cq(3);
  std::array<Completion, 2> out;
  for (uint64_t i = 0; i < 20; i += 2) {
    ASSERT_TRUE(cq.reserve() && cq.reserve());
    cq.push(completion(i));
    cq.push(completion(i + 1));
    ASSERT_EQ(cq.poll(out), 2u);
    EXPECT_EQ(out[0].id, i);
    EXPECT_EQ(out[1].id, i + 1);
  }
}

TEST(CompletionQueue, EventsAreOneShotAndMayBeLimitedToSolicitedOnes) {
  CompletionQueue cq(8);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(cq.reserve());
  cq.push(completion(1));
  EXPECT_FALSE(cq.take_event()) << "not armed";
  cq.arm(CompletionQueue::Arm::kSolicited);
  cq.push(completion(2));
  EXPECT_FALSE(cq.take_event());
  cq.push(completion(3, true));
  EXPECT_TRUE(cq.take_event());
  cq.push(completion(4, true));
  EXPECT_FALSE(cq.take_event()) << "one-shot";
  cq.arm(CompletionQueue::Arm::kSolicited);
  Completion failed = completion(5);
  failed.status = WorkStatus::kFlushed;
  cq.push(failed);
  EXPECT_TRUE(cq.take_event()) << "failures always count";
  cq.arm(CompletionQueue::Arm::kAny);
  cq.push(completion(6));
  EXPECT_TRUE(cq.take_event());
}

}  // namespace
}  // namespace ddpsock::rdmap
