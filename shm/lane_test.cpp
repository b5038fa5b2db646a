// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/lane.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace ddpsock::engine::shm {
namespace {

// A lane and its rings, each between two pages that nobody may touch.
class GuardedLane final : public Rings {
 public:
  GuardedLane() : GuardedLane(Guarded(kRingsSize)) {}
  Lane& lane() { return *reinterpret_cast<Lane*>(page_.begin); }
  bool provide(size_t from, size_t to) override {
    if (!has_memory) return false;
    provided += to - from;
    return true;
  }
  void give_back(size_t from, size_t to) override {
    EXPECT_EQ(from % kLanePage, 0u);
    EXPECT_EQ(to % kLanePage, 0u);
    EXPECT_LE(to, kRingsSize);
    EXPECT_GE(from, kRingSize) << "the small ring keeps its memory";
    given_back += to - from;
    if (is_erasing) memset(rings_.begin + from, 0xee, to - from);
  }
  bool is_within(const uint8_t* p, size_t n) const {
    return n == 0 || page_.has(p, n) || rings_.has(p, n);
  }

  bool has_memory = true, is_erasing = true;
  size_t provided = 0, given_back = 0;

 private:
  struct Guarded {
    explicit Guarded(size_t n) : size(n) {
      base = static_cast<uint8_t*>(mmap(nullptr, size + 2 * kLanePage, PROT_NONE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      begin = base + kLanePage;
      mprotect(begin, size, PROT_READ | PROT_WRITE);
    }
    Guarded(Guarded&& other) noexcept
        : size(other.size), base(std::exchange(other.base, nullptr)), begin(other.begin) {}
    ~Guarded() {
      if (base != nullptr) munmap(base, size + 2 * kLanePage);
    }
    bool has(const uint8_t* p, size_t n) const { return p >= begin && p + n <= begin + size; }
    size_t size;
    uint8_t *base, *begin;
  };
  explicit GuardedLane(Guarded rings)
      : Rings(rings.begin), page_(kLanePage), rings_(std::move(rings)) {
    lane().reset();
  }

  Guarded page_, rings_;
};

class LaneTest : public testing::Test {
 protected:
  // Into the ring, and beyond it if the writer does not wait.
  size_t put(size_t n, uint8_t value, bool may_spill = false) {
    size_t done = 0;
    while (done < n) {
      const auto room = writer.room(n - done);
      if (room.size == 0) {
        if (may_spill && writer.lend_spill()) continue;
        break;
      }
      memset(room.data, value, room.size);
      writer.put_beside_tail(room.data, room.size);
      writer.publish(room.size, 1);
      done += room.size;
    }
    return done;
  }
  std::vector<uint8_t> take(size_t n) {
    std::vector<uint8_t> got;
    while (got.size() < n) {
      const auto bytes = reader.next(n - got.size());
      if (bytes.size == 0) break;
      got.insert(got.end(), bytes.data, bytes.data + bytes.size);
      static_cast<void>(reader.take(bytes, 2));
    }
    return got;
  }

  GuardedLane memory;
  LaneTx tx;
  LaneRx rx;
  LaneWriter writer{memory.lane(), tx, memory};
  LaneReader reader{memory.lane(), rx, memory};
};

// What next() has given lies in the reader itself.
bool is_copied(const LaneReader& reader, const LaneReader::Bytes& bytes) {
  const auto* begin = reinterpret_cast<const uint8_t*>(&reader);
  return bytes.data >= begin && bytes.data + bytes.size <= begin + sizeof reader;
}

TEST_F(LaneTest, SmallOnesComeFromBesideTheTail) {
  for (const size_t n : {1u, 7u, 8u, 9u, 16u}) {
    ASSERT_EQ(put(n, 'a'), n);
    memory.lane().small.fill('x');
    EXPECT_TRUE(is_copied(reader, reader.next(100)));
    EXPECT_EQ(reader.at(n - 1, 100).size, 1u);
    EXPECT_EQ(reader.at(n - 1, 100).data[0], 'a');
    EXPECT_EQ(take(n), std::vector<uint8_t>(n, 'a')) << n;
  }
  ASSERT_EQ(put(17, 'b'), 17u);
  EXPECT_FALSE(is_copied(reader, reader.next(100)));
  EXPECT_EQ(take(17), std::vector<uint8_t>(17, 'b'));
}

TEST_F(LaneTest, OrFromWhereTheyLieIfMoreIsUnread) {
  ASSERT_EQ(put(8, 'a'), 8u);
  ASSERT_EQ(put(8, 'b'), 8u);
  EXPECT_FALSE(is_copied(reader, reader.next(100)));
  EXPECT_EQ(take(5), std::vector<uint8_t>(5, 'a'));
  EXPECT_EQ(take(3), std::vector<uint8_t>(3, 'a'));
  EXPECT_TRUE(is_copied(reader, reader.next(100)));
  EXPECT_EQ(take(3), std::vector<uint8_t>(3, 'b'));
  EXPECT_EQ(take(100), std::vector<uint8_t>(5, 'b'));
  ASSERT_EQ(put(300, 'c'), 300u);
  EXPECT_EQ(take(290), std::vector<uint8_t>(290, 'c'));
  EXPECT_EQ(take(100), std::vector<uint8_t>(10, 'c')) << "the copy is of others";
}

// A reader may be at the copy of what was published before.
TEST_F(LaneTest, WhatWasNotPublishedIsNotBesideTheTail) {
  ASSERT_EQ(put(8, 'a'), 8u);
  reader.close();
  for (int time = 0; time < 3; ++time) {
    const auto room = writer.room(8);
    memset(room.data, 'b', 8);
    writer.put_beside_tail(room.data, 8);
    ASSERT_EQ(writer.publish(8, 1), Publication::kClosed);
    EXPECT_TRUE(is_copied(reader, reader.next(100)));
  }
  EXPECT_EQ(take(100), std::vector<uint8_t>(8, 'a'));
}

TEST_F(LaneTest, BytesArriveInOrderThroughEveryOffset) {
  uint8_t value = 0;
  for (size_t n = 1; n < 70'000; n = n * 3 / 2 + 1) {
    for (int i = 0; i < 20; ++i, ++value) {
      ASSERT_EQ(put(n, value), n);
      ASSERT_EQ(take(n), std::vector<uint8_t>(n, value));
    }
  }
}

TEST_F(LaneTest, FillsToTheLastByteAndNoFurther) {
  put(10, 1);
  put(1000'000, 1);
  EXPECT_TRUE(writer.is_full());
  EXPECT_EQ(take(400).size(), 400u);
  EXPECT_EQ(put(2 * kRingSize, 2), 390u) << "the first ten were not in the ring";
  EXPECT_TRUE(writer.is_full());
  EXPECT_EQ(take(2 * kRingSize).size(), size_t{kRingSize});
  EXPECT_FALSE(writer.is_full());
}

TEST_F(LaneTest, SmallMessagesStayInTheFirstPage) {
  for (int i = 0; i < 1000; ++i) {
    put(100, 1);
    EXPECT_EQ(take(100).size(), 100u);
  }
  EXPECT_EQ(memory.provided, 0u);
}

// What TCP would have taken: four megabytes, given back as they are read.
TEST_F(LaneTest, TheLargeRingHoldsMegabytesAndKeepsNone) {
  for (int round = 0; round < 3; ++round) {
    const size_t sent = put(8 << 20, 1, true);
    EXPECT_GE(sent, size_t{4} << 20);
    EXPECT_LE(sent, kMostBytes);
    EXPECT_TRUE(writer.is_full());
    EXPECT_FALSE(writer.lend_spill());
    EXPECT_EQ(take(sent), std::vector<uint8_t>(sent, 1));
    EXPECT_FALSE(writer.is_full());
    EXPECT_EQ(put(1, 1), 1u);
    EXPECT_EQ(take(1).size(), 1u);
    EXPECT_GE(memory.given_back + kRingSize, memory.provided);
  }
}

// For a writer that needs it again and again.
TEST_F(LaneTest, TheLargeRingKeepsWhatItIsToldTo) {
  EXPECT_FALSE(writer.keeps_spill());
  writer.keep_spill();
  for (int round = 0; round < 3; ++round) {
    const size_t sent = put(8 << 20, 1, true);
    EXPECT_EQ(sent, kRingSize + kMostSpilt);
    EXPECT_TRUE(writer.is_spilling());
    EXPECT_EQ(take(sent), std::vector<uint8_t>(sent, 1));
    EXPECT_EQ(put(1, 1), 1u);
    EXPECT_EQ(take(1).size(), 1u);
    EXPECT_FALSE(writer.is_spilling());
    EXPECT_EQ(memory.given_back, 0u);
    EXPECT_EQ(memory.provided, kRingSize + kMostSpilt) << "once";
  }
  EXPECT_TRUE(writer.let_go_of_spill());
  EXPECT_FALSE(writer.keeps_spill());
  EXPECT_EQ(memory.given_back, kSpillSize);
  const size_t sent = put(8 << 20, 1, true);
  EXPECT_EQ(take(sent).size(), sent);
  EXPECT_EQ(put(1, 1), 1u);
  EXPECT_GE(memory.given_back, kSpillSize + kMostSpilt) << "as before";
}

// Not what is unread; and who goes on after all asks for memory again.
TEST_F(LaneTest, WhatIsKeptIsGivenBackAroundWhatLiesThere) {
  std::mt19937 rng(5);
  for (int round = 0; round < 200; ++round) {
    writer.keep_spill();
    const size_t first = 300'000 + rng() % 3'000'000;
    ASSERT_EQ(put(first, 1, true), first);
    ASSERT_EQ(take(rng() % first).size() + reader.size(), first);
    const size_t lying = reader.size();
    const size_t second = rng() % 500'000;
    const size_t more = put(second, 1, true);
    memory.given_back = 0;
    writer.keep_no_more();
    EXPECT_GE(memory.given_back + lying + more + 3 * kLanePage + kRingSize, size_t{kSpillSize});
    const size_t provided = memory.provided;
    ASSERT_EQ(put(1, 1, true), 1u);
    if (writer.is_spilling()) {
      EXPECT_GT(memory.provided, provided);
    }
    ASSERT_EQ(take(kMostBytes), std::vector<uint8_t>(lying + more + 1, 1)) << round;
    EXPECT_TRUE(writer.let_go_of_spill());
  }
}

// Who can wait asks again before it takes more, and goes back to where the cache is once all is
// read.
TEST_F(LaneTest, TheLargeRingIsLentByThePiece) {
  put(10, 1);
  EXPECT_EQ(put(1 << 20, 1), size_t{kRingSize});
  for (int piece = 0; piece < 3; ++piece) {
    EXPECT_TRUE(writer.lend_spill());
    EXPECT_EQ(put(1 << 20, 1), size_t{kSpillPiece});
    EXPECT_TRUE(writer.is_full());
  }
  take(2 * kRingSize);
  EXPECT_TRUE(writer.is_full()) << "not before all is read";
  take(kMostBytes);
  const size_t provided = memory.provided;
  EXPECT_EQ(put(kRingSize, 1), size_t{kRingSize});
  EXPECT_EQ(memory.provided, provided) << "the small ring";
}

class KeptOrNot : public LaneTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(LargeRing, KeptOrNot, testing::Bool());

// The same, never read to its end, so that it comes round.
TEST_P(KeptOrNot, TheLargeRingComesRoundAndTheReadersPageStays) {
  std::mt19937 rng(3);
  if (GetParam()) writer.keep_spill();
  uint8_t in = 0, out = 0;
  size_t lying = 0;
  for (int i = 0; i < 3000; ++i) {
    const size_t n = 1 + rng() % 90'000;
    for (size_t at = 0; at < n;) {
      const auto room = writer.room(n - at);
      if (room.size == 0 && !writer.lend_spill()) break;
      for (size_t k = 0; k < room.size; ++k) room.data[k] = in++;
      if (room.size > 0) writer.publish(room.size, 1);
      at += room.size;
      lying += room.size;
    }
    for (size_t wanted = std::min<size_t>(rng() % 90'000, lying - (lying > 0)); wanted > 0;) {
      const auto bytes = reader.next(wanted);
      ASSERT_GT(bytes.size, 0u);
      for (size_t k = 0; k < bytes.size; ++k) ASSERT_EQ(bytes.data[k], out++) << i;
      static_cast<void>(reader.take(bytes, 2));
      wanted -= bytes.size;
      lying -= bytes.size;
    }
  }
  if (GetParam()) {
    EXPECT_EQ(memory.given_back, 0u);
    EXPECT_EQ(memory.provided, kRingsSize) << "all of it, once";
    EXPECT_GT(rx.head, 4 * uint64_t{kSpillSize});
    EXPECT_FALSE(writer.let_go_of_spill()) << "bytes lie there";
  }
}

TEST_F(LaneTest, WithoutMemoryForTheRingsThePageServes) {
  memory.has_memory = false;
  EXPECT_EQ(put(100'000, 1), size_t{kSmallSize});
  EXPECT_TRUE(writer.is_full());
  EXPECT_FALSE(writer.lend_spill());
  EXPECT_EQ(take(10).size(), 10u);
  EXPECT_TRUE(writer.is_full());
  EXPECT_EQ(take(kSmallSize).size(), kSmallSize - 10u);
  EXPECT_FALSE(writer.is_full());
  memory.has_memory = true;
  EXPECT_EQ(put(100'000, 1), 100'000u);
  EXPECT_EQ(take(100'000).size(), 100'000u);
}

TEST_F(LaneTest, TheFirstPublicationMayBeMadeToRing) {
  disarm(memory.lane().bell.armed);
  tx.must_ring = true;
  EXPECT_EQ(writer.publish(writer.room(1).size, 1), Publication::kMustRing);
  EXPECT_EQ(writer.publish(writer.room(1).size, 1), Publication::kQuiet);
  EXPECT_FALSE(reader.arm());
  EXPECT_EQ(take(2).size(), 2u);
  EXPECT_TRUE(reader.arm());
  EXPECT_EQ(writer.publish(writer.room(1).size, 1), Publication::kMustRing);
}

TEST_F(LaneTest, NothingIsPublishedOnceTheReaderHasClosed) {
  put(10, 1);
  EXPECT_TRUE(writer.count(1));
  reader.close();
  EXPECT_EQ(writer.publish(writer.room(5).size, 1), Publication::kClosed);
  EXPECT_TRUE(writer.is_closed());
  EXPECT_FALSE(writer.count(1)) << "and no octet is sent";
  EXPECT_EQ(reader.octets_unread(), 1u);
  EXPECT_EQ(take(100).size(), 10u);
}

TEST_F(LaneTest, FpdusFollowTheOctetsThatAreCounted) {
  EXPECT_TRUE(writer.count(3));
  writer.settle(1);
  writer.close();
  EXPECT_FALSE(reader.has_left()) << "octets may still be under way";
  writer.leave();
  EXPECT_FALSE(reader.has_left());
  reader.note_octets(2);
  EXPECT_TRUE(reader.has_left());
}

// A reader that leaves while they are being sent must not take them for more than there will be.
TEST_F(LaneTest, OctetsAreSettledOnceTheyAreSentOrTakenBack) {
  EXPECT_TRUE(reader.are_octets_settled());
  EXPECT_TRUE(writer.count(5));
  reader.close();
  EXPECT_FALSE(reader.are_octets_settled());
  EXPECT_EQ(reader.octets_unread(), 5u);
  writer.settle(4);
  EXPECT_TRUE(reader.are_octets_settled());
  EXPECT_EQ(reader.octets_unread(), 1u);
  EXPECT_FALSE(writer.count(7));
  EXPECT_TRUE(reader.are_octets_settled());
  EXPECT_EQ(reader.octets_unread(), 1u);
}

TEST_F(LaneTest, AWriterThatWaitsForRoomIsSeenByTheReader) {
  put(2 * kRingSize, 1);
  EXPECT_TRUE(writer.want_room());
  EXPECT_FALSE(reader.take(reader.next(10), 2)) << "not for every byte of room";
  EXPECT_FALSE(writer.want_room());
  put(2 * kRingSize, 1);
  EXPECT_TRUE(writer.want_room());
  EXPECT_TRUE(reader.take(reader.next(kRingSize), 2));
}

// What the peer could write, against each side. Sizes stay within the memory whatever it says.
TEST_F(LaneTest, LiesAboutThePositionsStayWithinTheMemory) {
  std::mt19937_64 rng(7);
  memory.is_erasing = false;
  Lane& lane = memory.lane();
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t lie = rng() >> (rng() % 64);
    switch (rng() % 10) {
      case 0:
        lane.writer.tail.store(lie);
        break;
      case 1:
        lane.writer.base.store(lie);
        break;
      case 2:
        lane.writer.ring_from.store(rng() % 2 == 0 ? lie : rx.head + lie % kRingSize);
        break;
      case 3:
        lane.writer.spill_from.store(rng() % 2 == 0 ? lie : rx.head + lie % kRingSize);
        break;
      case 4:
        lane.reader.head.store(lie);
        break;
      case 5:
        lane.writer.octets.store(lie);
        break;
      case 6:
        lane.writer.tail.store(rx.head + rng() % (kMostBytes + 2));
        break;
      case 7:
        lane.writer.last_octet.store(lie);
        break;
      case 8:
        static_cast<void>(writer.lend_spill());
        break;
    }
    const auto bytes = reader.next(1 + rng() % kRingSize);
    ASSERT_TRUE(memory.is_within(bytes.data, bytes.size));
    ASSERT_LE(reader.size(), kMostBytes);
    static_cast<void>(reader.take(bytes, 1));
    const auto room = writer.room(1 + rng() % (2 * kRingSize));
    ASSERT_TRUE(memory.is_within(room.data, room.size));
    const uint64_t before = tx.tail;
    const auto published = writer.publish(room.size, 1);
    if (published == Publication::kCorrupt) {
      ASSERT_EQ(tx.tail, before);
    }
    ASSERT_LE(tx.tail - tx.head, uint64_t{kMostBytes});
  }
}

// Two honest threads, any sizes: order, content, and (under ThreadSanitizer) no race.
TEST(LaneThreads, StreamOfRandomPieces) {
  GuardedLane memory;
  memory.is_erasing = false;
  constexpr size_t kTotal = 40 << 20;
  LaneTx tx;
  std::thread thread([&] {
    LaneWriter writer(memory.lane(), tx, memory);
    std::minstd_rand rng(1);
    for (size_t at = 0; at < kTotal;) {
      const auto room = writer.room(std::min<size_t>(1 + rng() % 20'000, kTotal - at));
      for (size_t i = 0; i < room.size; ++i) room.data[i] = static_cast<uint8_t>((at + i) * 7 >> 3);
      if (room.size > 0) {
        writer.publish(room.size, 1);
      } else if (rng() % 4 != 0 || !writer.lend_spill()) {
        std::this_thread::yield();
      }
      at += room.size;
    }
  });
  LaneRx rx;
  LaneReader reader(memory.lane(), rx, memory);
  std::minstd_rand rng(2);
  for (size_t at = 0; at < kTotal;) {
    const auto bytes = reader.next(1 + rng() % 30'000);
    for (size_t i = 0; i < bytes.size; ++i)
      ASSERT_EQ(bytes.data[i], static_cast<uint8_t>((at + i) * 7 >> 3)) << at + i;
    if (bytes.size == 0) {
      std::this_thread::yield();
    } else {
      static_cast<void>(reader.take(bytes, 1));
    }
    at += bytes.size;
  }
  thread.join();
}

// Bytes beside the tail while the writer is far ahead.
TEST(LaneThreads, SmallMessagesAreWhole) {
  constexpr uint64_t kMessages = 400'000;
  GuardedLane memory;
  const auto size_of = [](uint64_t i) { return static_cast<size_t>(1 + i * 7 % 20); };
  std::thread thread([&] {
    LaneTx tx;
    LaneWriter writer(memory.lane(), tx, memory);
    for (uint64_t i = 0; i < kMessages; ++i) {
      auto room = writer.room(size_of(i));
      while (room.size < size_of(i)) {
        std::this_thread::yield();
        room = writer.room(size_of(i));
      }
      memset(room.data, static_cast<int>(i % 251), room.size);
      writer.put_beside_tail(room.data, room.size);
      ASSERT_NE(writer.publish(room.size, 1), Publication::kCorrupt);
    }
  });
  LaneRx rx;
  LaneReader reader(memory.lane(), rx, memory);
  size_t copied = 0, left = size_of(0);
  for (uint64_t i = 0; i < kMessages;) {
    const auto bytes = reader.next(1 + i % 40);
    copied += memory.is_within(bytes.data, bytes.size) ? 0 : bytes.size;
    for (size_t at = 0; at < bytes.size; ++at) {
      ASSERT_EQ(bytes.data[at], i % 251) << i;
      if (--left == 0) left = size_of(++i);
    }
    static_cast<void>(reader.take(bytes, 1));
  }
  EXPECT_GT(copied, 0u);
  thread.join();
}

// A peer that scribbles over all of the lane while it is read and written.
TEST(LaneThreads, AScribblingPeerSpoilsOnlyBytes) {
  GuardedLane memory;
  memory.is_erasing = false;
  std::atomic<bool> is_over{false};
  std::thread scribbler([&] {
    std::mt19937_64 rng(3);
    Lane& lane = memory.lane();
    while (!is_over.load(std::memory_order_relaxed)) {
      const uint64_t tail = rng() >> (rng() % 64);
      lane.writer.beside_tail[rng() % 2].tag.store(tail << BesideTail::kSizeBits | rng() % 32);
      lane.writer.tail.store(tail, std::memory_order_relaxed);
      lane.writer.base.store(rng(), std::memory_order_relaxed);
      lane.writer.ring_from.store(rng() >> (rng() % 64), std::memory_order_relaxed);
      lane.writer.spill_from.store(rng() >> (rng() % 64), std::memory_order_relaxed);
      lane.writer.octets.store(rng() >> (rng() % 64), std::memory_order_relaxed);
      lane.writer.keeps_spill.store(static_cast<uint8_t>(rng() % 2), std::memory_order_relaxed);
      lane.reader.head.store(rng() >> (rng() % 64), std::memory_order_relaxed);
      lane.bell.armed.store(static_cast<uint32_t>(rng() % 2), std::memory_order_relaxed);
    }
  });
  LaneTx tx;
  LaneRx rx;
  LaneWriter writer(memory.lane(), tx, memory);
  LaneReader reader(memory.lane(), rx, memory);
  for (uint32_t i = 0; i < 300'000; ++i) {
    if (i % 7 == 0) static_cast<void>(writer.lend_spill());
    if (i % 11 == 0) writer.keep_spill();
    if (i % 13 == 0) static_cast<void>(writer.let_go_of_spill());
    const auto room = writer.room(1 + i % 100'000);
    ASSERT_TRUE(memory.is_within(room.data, room.size));
    writer.publish(room.size, 1);
    const auto bytes = reader.next(1 + i % 100'000);
    ASSERT_TRUE(memory.is_within(bytes.data, bytes.size) || is_copied(reader, bytes));
    static_cast<void>(reader.take(bytes, 1));
    reader.arm();
  }
  is_over = true;
  scribbler.join();
}

}  // namespace
}  // namespace ddpsock::engine::shm
