// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/post_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace ddpsock::ddp {
namespace {

using Ring = PostRing<uint64_t>;

bool put(Ring& ring, uint64_t value) {
  const PostPlaces place = ring.claim(1);
  if (place.count == 0) return false;
  ring.at(place, 0) = value;
  ring.publish(place, 0);
  return true;
}

uint64_t take(Ring& ring) {
  const uint64_t value = ring.front();
  ring.pop();
  return value;
}

TEST(PostRing, IsFirstInFirstOutFarBeyondItsCapacity) {
  Ring ring(5);
  ASSERT_TRUE(ring.has_memory_for(5));
  uint64_t next = 0, expected = 0;
  for (int round = 0; round < 100; ++round) {
    while (put(ring, next)) ++next;
    EXPECT_TRUE(ring.is_full());
    EXPECT_EQ(ring.take_in(), 5u);
    while (!ring.is_empty()) EXPECT_EQ(take(ring), expected++);
    EXPECT_TRUE(ring.is_idle());
    EXPECT_EQ(ring.head(), expected);
  }
  EXPECT_EQ(expected, 500u);
}

TEST(PostRing, ShowsNothingBeforeItIsTakenIn) {
  Ring ring(4);
  put(ring, 7);
  EXPECT_TRUE(ring.is_empty());
  EXPECT_FALSE(ring.is_idle());
  EXPECT_TRUE(ring.has_more());
  EXPECT_EQ(ring.take_in(), 1u);
  EXPECT_EQ(ring.size(), 1u);
  EXPECT_FALSE(ring.has_more());
  EXPECT_EQ(ring.take_in(), 0u);
}

TEST(PostRing, WhoHasAPlaceHoldsBackWhatCameAfter) {
  Ring ring(4);
  const PostPlaces first = ring.claim(1);
  put(ring, 2);
  EXPECT_EQ(ring.take_in(), 0u);
  EXPECT_TRUE(ring.has_more());
  ring.at(first, 0) = 1;
  ring.publish(first, 0);
  EXPECT_EQ(ring.take_in(), 2u);
  EXPECT_EQ(take(ring), 1u);
  EXPECT_EQ(take(ring), 2u);
}

TEST(PostRing, APlaceIsFreeOnceItsElementIsPopped) {
  Ring ring(2);
  put(ring, 1);
  put(ring, 2);
  EXPECT_EQ(ring.claim(1).count, 0u);
  ring.take_in();
  EXPECT_EQ(ring.claim(1).count, 0u);
  ring.pop();
  EXPECT_TRUE(put(ring, 3));
  EXPECT_FALSE(put(ring, 4));
}

TEST(PostRing, GivesAsManyPlacesAsThereAre) {
  Ring ring(5);
  put(ring, 0);
  EXPECT_EQ(ring.room(), 4u);
  const PostPlaces places = ring.claim(6);
  ASSERT_EQ(places.count, 4u);
  EXPECT_EQ(ring.claim(1).count, 0u);
  for (uint32_t i = 0; i < places.count; ++i) {
    ring.at(places, i) = i + 1;
    ring.publish(places, i);
  }
  EXPECT_EQ(ring.take_in(), 5u);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(take(ring), i);
}

// Each thread's elements come out in its order, each once.
TEST(PostRing, ManyThreadsPut) {
  constexpr uint32_t kThreads = 4, kEach = 20'000;
  Ring ring(7);
  std::vector<std::jthread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&ring, t] {
      for (uint64_t i = 0; i < kEach;) {
        if (put(ring, t << 32 | i)) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::array<uint64_t, kThreads> next{};
  for (uint32_t taken = 0; taken < kThreads * kEach;) {
    ring.take_in();
    if (ring.is_empty()) std::this_thread::yield();
    for (; !ring.is_empty(); ++taken) {
      const uint64_t value = take(ring);
      ASSERT_EQ(value & 0xffff'ffff, next.at(value >> 32)++);
    }
  }
  EXPECT_TRUE(ring.is_idle());
}

}  // namespace
}  // namespace ddpsock::ddp
