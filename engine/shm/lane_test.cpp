// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/shm/lane.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace ddpsock::engine::shm {
namespace {

constexpr size_t kPage = 4096;

// A lane between two pages that nobody may touch.
class GuardedLane {
 public:
  GuardedLane() {
    const size_t size = (sizeof(Lane) + kPage - 1) / kPage * kPage;
    size_ = size + 2 * kPage;
    base_ =
        static_cast<uint8_t*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + kPage, size, PROT_READ | PROT_WRITE);
    lane().reset();
  }
  ~GuardedLane() { munmap(base_, size_); }
  GuardedLane(const GuardedLane&) = delete;
  Lane& lane() { return *reinterpret_cast<Lane*>(base_ + kPage); }

 private:
  uint8_t* base_;
  size_t size_;
};

class LaneTest : public testing::Test {
 protected:
  LaneTest() { EXPECT_TRUE(writer.turn_to_ring(1, 1)); }

  size_t put(size_t n, uint8_t value) {
    size_t done = 0;
    while (done < n) {
      const auto room = writer.room(n - done);
      if (room.size == 0) break;
      memset(room.data, value, room.size);
      writer.publish(room.size, 1);
      done += room.size;
    }
    return done;
  }
  std::vector<uint8_t> take(size_t n, uint32_t next_fpdu = 1) {
    std::vector<uint8_t> got;
    while (got.size() < n) {
      const auto bytes = reader.next(next_fpdu, n - got.size());
      if (bytes.size == 0) break;
      got.insert(got.end(), bytes.data, bytes.data + bytes.size);
      static_cast<void>(reader.take(bytes.size, 2));
    }
    return got;
  }

  GuardedLane memory;
  LaneTx tx;
  LaneRx rx;
  LaneWriter writer{memory.lane(), tx};
  LaneReader reader{memory.lane(), rx};
};

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
  put(1000, 1);
  EXPECT_EQ(take(400).size(), 400u);
  EXPECT_EQ(put(2 * kRingSize, 2), kRingSize - 600);
  EXPECT_TRUE(writer.is_full());
  EXPECT_EQ(take(2 * kRingSize).size(), size_t{kRingSize});
  EXPECT_FALSE(writer.is_full());
}

TEST_F(LaneTest, SmallMessagesStayInTheFirstPage) {
  for (int i = 0; i < 1000; ++i) {
    put(100, 1);
    EXPECT_LE(writer.offset(), kSmallRing);
    EXPECT_EQ(take(100).size(), 100u);
  }
}

TEST_F(LaneTest, TheFirstPublicationAfterABarrierRings) {
  disarm(memory.lane().bell.armed);
  EXPECT_EQ(writer.publish(writer.room(1).size, 1), Publication::kMustRing);
  EXPECT_EQ(writer.publish(writer.room(1).size, 1), Publication::kQuiet);
  EXPECT_FALSE(reader.arm(1));
  EXPECT_EQ(take(2).size(), 2u);
  EXPECT_TRUE(reader.arm(1));
  EXPECT_EQ(writer.publish(writer.room(1).size, 1), Publication::kMustRing);
}

// FPDUs 1 and 2 go over the wire between two stretches of the ring.
TEST_F(LaneTest, ABarrierHoldsLaterBytesBackUntilTheFpdusAreTaken) {
  put(10, 1);
  writer.turn_to_wire();
  EXPECT_TRUE(reader.is_wire_in_use(1));
  EXPECT_TRUE(writer.turn_to_ring(3, 1));
  put(10, 2);
  EXPECT_EQ(take(100, 1), std::vector<uint8_t>(10, 1));
  EXPECT_EQ(reader.next(2, 1).size, 0u);
  EXPECT_TRUE(reader.is_wire_in_use(2));
  writer.turn_to_wire();
  EXPECT_FALSE(writer.turn_to_ring(5, 1)) << "the reader has not passed the barrier";
  reader.note_fpdu(3);
  EXPECT_EQ(take(100, 3), std::vector<uint8_t>(10, 2));
  EXPECT_TRUE(writer.turn_to_ring(5, 1));
  EXPECT_TRUE(reader.is_wire_in_use(4));
  EXPECT_FALSE(reader.is_wire_in_use(5));
}

TEST_F(LaneTest, NothingIsPublishedOnceTheReaderHasClosed) {
  put(10, 1);
  reader.close();
  EXPECT_EQ(writer.publish(writer.room(5).size, 1), Publication::kClosed);
  EXPECT_TRUE(writer.is_closed());
  EXPECT_EQ(take(100).size(), 10u);
}

TEST_F(LaneTest, AWriterThatWaitsForRoomIsSeenByTheReader) {
  put(kRingSize, 1);
  EXPECT_TRUE(writer.want_room());
  const auto bytes = reader.next(1, 10);
  EXPECT_TRUE(reader.take(bytes.size, 2));
  EXPECT_FALSE(writer.want_room());
}

// What the peer could write, against each side. Sizes stay within the ring whatever it says.
TEST_F(LaneTest, LiesAboutThePositionsStayWithinTheRing) {
  std::mt19937_64 rng(7);
  Lane& lane = memory.lane();
  const auto in_ring = [&](const uint8_t* p, size_t n) {
    return n == 0 || (p >= lane.data.data() && p + n <= lane.data.data() + kRingSize);
  };
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t lie = rng() >> (rng() % 64);
    switch (rng() % 8) {
      case 0:
        lane.writer.tail.store(lie);
        break;
      case 1:
        lane.writer.base.store(lie);
        break;
      case 2:
        lane.writer.barrier.store(lie);
        break;
      case 3:
        lane.writer.barrier_fpdu.store(static_cast<uint32_t>(lie));
        break;
      case 4:
        lane.reader.head.store(lie);
        break;
      case 5:
        lane.reader.next_fpdu.store(static_cast<uint32_t>(lie));
        break;
      case 6:
        lane.writer.tail.store(rx.head + rng() % (kRingSize + 2));
        break;
      case 7:
        lane.writer.bells.store(static_cast<uint32_t>(lie));
        break;
    }
    const auto bytes = reader.next(static_cast<uint32_t>(rng()), 1 + rng() % kRingSize);
    ASSERT_TRUE(in_ring(bytes.data, bytes.size));
    ASSERT_LE(reader.size(), kRingSize);
    static_cast<void>(reader.take(bytes.size, 1));
    const auto room = writer.room(1 + rng() % (2 * kRingSize));
    ASSERT_TRUE(in_ring(room.data, room.size));
    const uint64_t before = tx.tail;
    const auto published = writer.publish(room.size, 1);
    if (published == Publication::kCorrupt) {
      ASSERT_EQ(tx.tail, before);
    }
    ASSERT_LE(tx.tail - tx.head, uint64_t{kRingSize});
  }
}

// Two honest threads, any sizes: order, content, and (under ThreadSanitizer) no race.
TEST(LaneThreads, StreamOfRandomPieces) {
  GuardedLane memory;
  constexpr size_t kTotal = 20 << 20;
  LaneTx tx;
  ASSERT_TRUE(LaneWriter(memory.lane(), tx).turn_to_ring(1, 1));
  std::thread thread([&] {
    LaneWriter writer(memory.lane(), tx);
    std::minstd_rand rng(1);
    for (size_t at = 0; at < kTotal;) {
      const auto room = writer.room(std::min<size_t>(1 + rng() % 20'000, kTotal - at));
      for (size_t i = 0; i < room.size; ++i) room.data[i] = static_cast<uint8_t>((at + i) * 7 >> 3);
      if (room.size == 0) {
        std::this_thread::yield();
      } else {
        writer.publish(room.size, 1);
      }
      at += room.size;
    }
  });
  LaneRx rx;
  LaneReader reader(memory.lane(), rx);
  std::minstd_rand rng(2);
  for (size_t at = 0; at < kTotal;) {
    const auto bytes = reader.next(1, 1 + rng() % 30'000);
    for (size_t i = 0; i < bytes.size; ++i)
      ASSERT_EQ(bytes.data[i], static_cast<uint8_t>((at + i) * 7 >> 3)) << at + i;
    if (bytes.size == 0) {
      std::this_thread::yield();
    } else {
      static_cast<void>(reader.take(bytes.size, 1));
    }
    at += bytes.size;
  }
  thread.join();
}

// A peer that scribbles over all of the lane while it is read and written.
TEST(LaneThreads, AScribblingPeerSpoilsOnlyBytes) {
  GuardedLane memory;
  std::atomic<bool> is_over{false};
  std::thread scribbler([&] {
    std::mt19937_64 rng(3);
    Lane& lane = memory.lane();
    while (!is_over.load(std::memory_order_relaxed)) {
      lane.writer.tail.store(rng() >> (rng() % 64), std::memory_order_relaxed);
      lane.writer.base.store(rng(), std::memory_order_relaxed);
      lane.writer.barrier.store(rng(), std::memory_order_relaxed);
      lane.writer.barrier_fpdu.store(static_cast<uint32_t>(rng()), std::memory_order_relaxed);
      lane.reader.head.store(rng() >> (rng() % 64), std::memory_order_relaxed);
      lane.reader.next_fpdu.store(static_cast<uint32_t>(rng()), std::memory_order_relaxed);
      lane.bell.armed.store(static_cast<uint32_t>(rng() % 2), std::memory_order_relaxed);
    }
  });
  LaneTx tx;
  LaneRx rx;
  LaneWriter writer(memory.lane(), tx);
  LaneReader reader(memory.lane(), rx);
  const uint8_t* const first = memory.lane().data.data();
  const uint8_t* const last = first + kRingSize;
  for (uint32_t i = 0; i < 300'000; ++i) {
    static_cast<void>(writer.turn_to_ring(i, 1));
    const auto room = writer.room(1 + i % 100'000);
    ASSERT_TRUE(room.data >= first && room.data + room.size <= last);
    writer.publish(room.size, 1);
    const auto bytes = reader.next(i, 1 + i % 100'000);
    ASSERT_TRUE(bytes.size == 0 || (bytes.data >= first && bytes.data + bytes.size <= last));
    static_cast<void>(reader.take(bytes.size, 1));
    reader.arm(i);
  }
  is_over = true;
  scribbler.join();
}

}  // namespace
}  // namespace ddpsock::engine::shm
