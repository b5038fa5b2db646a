// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/message_lane.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace ddpsock::engine::shm {
namespace {

constexpr uint64_t kSecret = 0x8123'4567'89ab'cdef;
using Record = MessageReader::Record;
using Kind = Record::Kind;

class MessageLaneTest : public ::testing::Test {
 protected:
  void write(uint32_t header, uint32_t payload, uint8_t seed) {
    ASSERT_TRUE(writer_.has_room());
    const std::vector<uint8_t> bytes(header, seed);
    std::memset(writer_.begin(bytes, payload), seed, payload);
    writer_.publish(header, payload, payload, 0);
  }
  void expect(uint32_t header, uint32_t payload, uint8_t seed) {
    Record r;
    reader_.next(r);
    ASSERT_EQ(r.kind, Kind::kSegment);
    ASSERT_EQ(r.header_length, header);
    ASSERT_EQ(r.payload, payload);
    for (uint8_t b : r.ddp_header()) ASSERT_EQ(b, seed);
    for (uint32_t i = 0; i < payload; ++i) ASSERT_EQ(r.body[i], seed);
    reader_.take(r);
  }
  bool is_empty() {
    Record r;
    reader_.next(r);
    return r.kind == Kind::kNone;
  }
  RecordHead* head_at(uint64_t position) {
    return reinterpret_cast<RecordHead*>(&lane_->data[position & (kMessageRing - 1)]);
  }

  std::unique_ptr<MessageLane> lane_ = std::make_unique<MessageLane>();
  MessageWriter writer_{*lane_, kSecret};
  MessageReader reader_{*lane_, kSecret};
};

TEST_F(MessageLaneTest, RecordsOfAllSizesComeInOrderRoundTheRing) {
  std::mt19937 random(1);
  EXPECT_TRUE(is_empty());
  struct Written {
    uint32_t header, payload;
    uint8_t seed;
  };
  std::vector<Written> unread;
  uint64_t octets = 0;
  for (uint32_t i = 0; octets < 5u * kMessageRing; ++i) {
    const auto length = random() % 3 == 0 ? random() % (kMostInRecord + 1) : random() % 300;
    const Written next{.header = random() % 2 == 0 ? 14u : 18u,
                       .payload = static_cast<uint32_t>(length),
                       .seed = static_cast<uint8_t>(i)};
    if (!writer_.has_room() || random() % 4 == 0) {
      for (const Written& w : unread) expect(w.header, w.payload, w.seed);
      unread.clear();
      EXPECT_TRUE(is_empty());
      reader_.publish_head();
      ASSERT_EQ(writer_.head(), writer_.tail());
    }
    write(next.header, next.payload, next.seed);
    unread.push_back(next);
    octets += next.payload;
  }
}

TEST_F(MessageLaneTest, AFullRingHasNoRoomUntilTheHeadMoves) {
  uint32_t count = 0;
  for (; writer_.has_room(); ++count) write(18, kMostInRecord, 1);
  EXPECT_GE(count, kMessageRing / record_size(18, kMostInRecord) - 2);
  expect(18, kMostInRecord, 1);
  EXPECT_FALSE(writer_.has_room());
  reader_.publish_head();
  EXPECT_TRUE(writer_.has_room());
}

TEST_F(MessageLaneTest, ASmallMessageLiesInOneCacheLine) {
  EXPECT_EQ(record_size(18, 8), kUnit);
  EXPECT_EQ(record_size(18, 30), kUnit);
  EXPECT_EQ(record_size(18, 31), 2 * kUnit);
}

TEST_F(MessageLaneTest, WhoArmsIsRungForOnce) {
  EXPECT_TRUE(reader_.arm());
  write(18, 8, 1);
  EXPECT_TRUE(writer_.must_ring());
  write(18, 8, 2);
  EXPECT_FALSE(writer_.must_ring());
  EXPECT_FALSE(reader_.arm());  // there is one
  EXPECT_FALSE(writer_.must_ring());
}

TEST_F(MessageLaneTest, WhoWantsRoomIsRungForOnce) {
  write(18, 8, 1);
  EXPECT_EQ(writer_.head(), 0u);
  EXPECT_TRUE(writer_.want_room());
  expect(18, 8, 1);
  reader_.publish_head();
  EXPECT_TRUE(reader_.must_ring());
  EXPECT_FALSE(reader_.must_ring());
  EXPECT_FALSE(writer_.want_room());  // it has moved
}

TEST_F(MessageLaneTest, AHeadThatLiesGivesNoRoom) {
  while (writer_.has_room()) write(18, kMostInRecord, 1);
  for (const uint64_t head : {writer_.tail() + 64, uint64_t{1} << 63, ~uint64_t{0}}) {
    lane_->reader.head.store(head);
    EXPECT_FALSE(writer_.has_room()) << head;
  }
}

// Sizes that reach beyond the record, the header or the ring; a hole where there is none.
TEST_F(MessageLaneTest, WhatARecordSaysIsBounded) {
  const RecordHead bad[] = {
      {.tag = kSecret, .payload = kMostInRecord + 1, .header = 18, .ranges = 0, .reserved = 0},
      {.tag = kSecret, .payload = ~0u, .header = 18, .ranges = 0, .reserved = 0},
      {.tag = kSecret, .payload = 8, .header = kMostHeader + 1, .ranges = 0, .reserved = 0},
      {.tag = kSecret, .payload = 8, .header = 18, .ranges = kMostRanges + 1, .reserved = 0},
      {.tag = kSecret, .payload = 0, .header = 0, .ranges = kSkip, .reserved = 0},
  };
  for (const RecordHead& head : bad) {
    *head_at(0) = head;
    Record r;
    reader_.next(r);
    EXPECT_EQ(r.kind, Kind::kCorrupt);
  }
}

TEST_F(MessageLaneTest, ARecordMayNotReachBeyondTheRing) {
  while (kMessageRing - (writer_.tail() & (kMessageRing - 1)) > 2 * kUnit) {
    write(18, 8, 1);
    expect(18, 8, 1);
    reader_.publish_head();
  }
  *head_at(writer_.tail()) = {.tag = kSecret + writer_.tail(),
                              .payload = kMostInRecord,
                              .header = 18,
                              .ranges = 0,
                              .reserved = 0};
  Record r;
  reader_.next(r);
  EXPECT_EQ(r.kind, Kind::kCorrupt);
}

TEST_F(MessageLaneTest, ARecordOfTheLastRoundIsNotThisRounds) {
  *head_at(0) = {
      .tag = kSecret - kMessageRing, .payload = 0, .header = 18, .ranges = 0, .reserved = 0};
  EXPECT_TRUE(is_empty());
}

}  // namespace
}  // namespace ddpsock::engine::shm
