// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/receive_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <vector>

#include "ddp/segmenter.h"
#include "ddp/tagged_buffer.h"

namespace ddpsock::ddp {
namespace {

ScatterList list_of(MutBytes b) {
  ScatterList l;
  l.append(b);
  return l;
}

UntaggedHeader header(uint32_t msn, uint32_t mo, bool is_last) {
  return {.is_last = is_last, .rsvd_ulp = {0x43, 0}, .qn = 0, .msn = msn, .mo = mo};
}

// One queue with three buffers of 100 bytes, cookies 1, 2, 3.
struct Fixture {
  explicit Fixture(LlpOrder order = LlpOrder::kInOrder, uint32_t fragments = 8)
      : queue(3, fragments, order) {
    for (uint32_t i = 0; i < 3; ++i) {
      memory[i].fill(0xa5);
      EXPECT_TRUE(queue.post(i + 1, list_of(memory[i])));
    }
    queue.take_in();
  }
  Result<Located, Error> locate(uint32_t msn, uint32_t mo, uint32_t n, bool is_last) {
    return queue.locate(header(msn, mo, is_last), n, Into::kBuffer);
  }
  bool place(uint32_t msn, uint32_t mo, uint32_t n, bool is_last) {
    const auto where = locate(msn, mo, n, is_last);
    if (!where) return false;
    queue.note_placed(header(msn, mo, is_last), n);
    return true;
  }
  std::array<std::array<uint8_t, 100>, 3> memory;
  ReceiveQueue queue;
};

TEST(ReceiveQueue, Trap21MsnStartsAtOneAndCountsMessages) {
  Fixture f;
  EXPECT_EQ(f.locate(0, 0, 1, true).error(), Error::kMsnRange);
  EXPECT_TRUE(f.place(1, 0, 50, false));
  EXPECT_FALSE(f.queue.deliver());
  EXPECT_TRUE(f.place(1, 50, 10, true));
  const auto d = f.queue.deliver();
  ASSERT_TRUE(d);
  EXPECT_EQ(d->cookie, 1u);
  EXPECT_EQ(d->length, 60u);
  EXPECT_EQ(d->msn, 1u);
  EXPECT_EQ(d->rsvd_ulp.control, 0x43);
  EXPECT_FALSE(f.queue.deliver());
  EXPECT_TRUE(f.place(2, 0, 1, true));
}

TEST(ReceiveQueue, Trap21MsnWrapsModulo2To32) {
  ReceiveQueue r(2, 4, LlpOrder::kAnyOrder);
  r.skip_msn(0xffff'fffe);
  ASSERT_EQ(r.first_msn(), 0xffff'ffffu);
  std::array<uint8_t, 8> a{}, b{};
  r.post(10, list_of(a));
  r.post(11, list_of(b));
  r.take_in();
  ASSERT_TRUE(r.locate(header(0, 0, true), 4, Into::kBuffer));
  r.note_placed(header(0, 0, true), 4);
  EXPECT_FALSE(r.deliver());
  ASSERT_TRUE(r.locate(header(0xffff'ffff, 0, true), 4, Into::kBuffer));
  r.note_placed(header(0xffff'ffff, 0, true), 4);
  EXPECT_EQ(r.deliver()->cookie, 10u);
  EXPECT_EQ(r.deliver()->cookie, 11u);
}

TEST(ReceiveQueue, Trap22NoBufferPosted) {
  Fixture f;
  EXPECT_EQ(f.locate(4, 0, 1, true).error(), Error::kNoBuffer);
  for (uint32_t msn = 1; msn <= 3; ++msn) {
    ASSERT_TRUE(f.place(msn, 0, 0, true));
    ASSERT_TRUE(f.queue.deliver());
  }
  EXPECT_EQ(f.locate(4, 0, 0, true).error(), Error::kNoBuffer) << "a zero-length message needs one";
}

TEST(ReceiveQueue, AMessageAsLongAsTheBufferFitsAndOneByteMoreDoesNot) {
  Fixture f;
  EXPECT_TRUE(f.locate(1, 0, 100, true));
  EXPECT_EQ(f.locate(1, 0, 101, true).error(), Error::kTooLong);
  EXPECT_EQ(f.locate(1, 99, 2, true).error(), Error::kTooLong);
  EXPECT_EQ(f.locate(1, 101, 0, true).error(), Error::kInvalidMo);
  EXPECT_EQ(f.locate(1, 0xffff'ffff, 0xffff'ffff, false).error(), Error::kInvalidMo);
}

TEST(ReceiveQueue, LocatingChangesNothing) {
  Fixture f;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(f.locate(1, 0, 100, true));
  EXPECT_FALSE(f.queue.deliver());
  EXPECT_FALSE(f.queue.has_partial());
}

TEST(ReceiveQueue, InOrderRefusesRepeatsLaterMessagesAndGapsAtTheEnd) {
  Fixture f;
  ASSERT_TRUE(f.place(1, 0, 50, false));
  EXPECT_EQ(f.locate(1, 0, 50, false).error(), Error::kInvalidMo) << "repeat";
  EXPECT_EQ(f.locate(1, 49, 2, false).error(), Error::kInvalidMo) << "overlap";
  EXPECT_EQ(f.locate(2, 0, 1, true).error(), Error::kMsnRange) << "message 1 is not whole";
  EXPECT_EQ(f.locate(1, 60, 1, true).error(), Error::kInvalidMo) << "last, but 50 to 60 missing";
  EXPECT_TRUE(f.locate(1, 60, 1, false)) << "a sender may cut in any order";
}

TEST(ReceiveQueue, InOrderRefusesADeliveredMsn) {
  Fixture f;
  ASSERT_TRUE(f.place(1, 0, 5, true));
  ASSERT_TRUE(f.queue.deliver());
  EXPECT_EQ(f.locate(1, 0, 5, true).error(), Error::kMsnRange);
}

TEST(ReceiveQueue, Trap24DeliversInMsnOrderWhateverTheOrderOfPlacement) {
  Fixture f(LlpOrder::kAnyOrder);
  ASSERT_TRUE(f.place(3, 0, 30, true));
  ASSERT_TRUE(f.place(2, 10, 10, true));
  EXPECT_FALSE(f.queue.deliver());
  ASSERT_TRUE(f.place(1, 0, 1, true));
  EXPECT_EQ(f.queue.deliver()->cookie, 1u);
  EXPECT_FALSE(f.queue.deliver()) << "message 2 lacks its first bytes";
  ASSERT_TRUE(f.place(2, 0, 10, false));
  EXPECT_EQ(f.queue.deliver()->length, 20u);
  EXPECT_EQ(f.queue.deliver()->length, 30u);
}

TEST(ReceiveQueue, AnyOrderDiscardsRepeatsAlsoOfDeliveredMessages) {
  Fixture f(LlpOrder::kAnyOrder);
  ASSERT_TRUE(f.place(1, 5, 5, false));
  EXPECT_TRUE(f.locate(1, 5, 5, false)->is_duplicate);
  EXPECT_FALSE(f.locate(1, 4, 5, false)->is_duplicate);
  ASSERT_TRUE(f.place(1, 0, 5, false));
  ASSERT_TRUE(f.place(1, 10, 0, true));
  ASSERT_TRUE(f.queue.deliver());
  const auto again = f.locate(1, 0, 5, false);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->is_duplicate);
  EXPECT_TRUE(again->spans.is_empty()) << "the buffer is the program's again";
}

TEST(ReceiveQueue, TheLastSegmentHasTheHighestOffset) {
  Fixture f(LlpOrder::kAnyOrder);
  ASSERT_TRUE(f.place(1, 40, 10, true));
  EXPECT_EQ(f.locate(1, 50, 1, false).error(), Error::kInvalidMo) << "beyond the end";
  EXPECT_EQ(f.locate(1, 30, 10, true).error(), Error::kInvalidMo) << "another end";
  Fixture g(LlpOrder::kAnyOrder);
  ASSERT_TRUE(g.place(1, 40, 10, false));
  EXPECT_EQ(g.locate(1, 0, 10, true).error(), Error::kInvalidMo) << "bytes lie beyond it";
}

TEST(ReceiveQueue, TooManyGapsAreRefusedNotRemembered) {
  Fixture f(LlpOrder::kAnyOrder, 2);
  ASSERT_TRUE(f.place(1, 10, 1, false));
  ASSERT_TRUE(f.place(2, 10, 1, false));
  EXPECT_EQ(f.locate(1, 20, 1, false).error(), Error::kLocalCatastrophic);
  EXPECT_TRUE(f.place(1, 0, 10, false)) << "what fills a gap is always welcome";
}

TEST(ReceiveQueue, AsideBytesDoNotTouchTheBuffer) {
  ReceiveQueue q(1, 2, LlpOrder::kInOrder);
  ASSERT_TRUE(q.post(9, {}));
  q.take_in();
  EXPECT_EQ(q.locate(header(1, 0, true), 9, Into::kAside).error(), Error::kTooLong);
  const auto where = q.locate(header(1, 0, true), 8, Into::kAside);
  ASSERT_TRUE(where);
  const MutBytes aside = where->spans.ranges()[0];
  std::iota(aside.begin(), aside.end(), uint8_t{1});
  q.note_placed(header(1, 0, true), 8);
  EXPECT_EQ(q.deliver()->aside, (std::array<uint8_t, 8>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(ReceiveQueue, IsBoundedAndTakesBackWhatIsLeft) {
  Fixture f;
  EXPECT_FALSE(f.queue.post(4, {}));
  ASSERT_TRUE(f.place(1, 0, 5, false));
  EXPECT_TRUE(f.queue.has_partial());
  EXPECT_EQ(f.queue.take_back(), 1u);
  EXPECT_EQ(f.queue.take_back(), 2u);
  EXPECT_EQ(f.queue.take_back(), 3u);
  EXPECT_FALSE(f.queue.take_back());
}

// Three messages cut at random, shuffled and repeated: every byte in place, each message once, in
// order.
TEST(ReceiveQueue, RandomOrderAndRepeats) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    Fixture f(LlpOrder::kAnyOrder, 64);
    std::array<std::vector<uint8_t>, 3> data;
    std::vector<Segment> segments;
    for (uint32_t i = 0; i < 3; ++i) {
      data[i].resize(random() % 101);
      for (uint8_t& b : data[i]) b = static_cast<uint8_t>(random());
      const Bytes range(data[i]);
      Segmenter m(header(i + 1, 0, false), GatherList(std::span<const Bytes>(&range, 1)));
      while (!m.is_done()) segments.push_back(m.next(19 + random() % 40));
    }
    const size_t once = segments.size();
    for (size_t i = 0; i < once; ++i) {
      if (random() % 3 == 0) segments.push_back(segments[i]);
    }
    std::shuffle(segments.begin(), segments.end(), random);

    uint32_t delivered = 0;
    for (const Segment& s : segments) {
      const UntaggedHeader h = UntaggedView::parse(s.header())->value();
      const auto n = static_cast<uint32_t>(s.payload.total());
      const auto where = f.queue.locate(h, n, Into::kBuffer);
      ASSERT_TRUE(where) << "seed " << seed;
      if (!where->is_duplicate && n != 0) {
        std::copy_n(s.payload.ranges()[0].begin(), n, where->spans.ranges()[0].begin());
      }
      f.queue.note_placed(h, n);
      while (const auto d = f.queue.deliver()) {
        ASSERT_EQ(d->cookie, ++delivered) << "seed " << seed;
        ASSERT_EQ(d->length, data[delivered - 1].size()) << "seed " << seed;
        ASSERT_TRUE(std::equal(data[delivered - 1].begin(), data[delivered - 1].end(),
                               f.memory[delivered - 1].begin()))
            << "seed " << seed;
      }
    }
    ASSERT_EQ(delivered, 3u) << "seed " << seed;
  }
}

TEST(TaggedBuffer, Trap23BoundsAndWrapAreCheckedForEverySegment) {
  std::array<uint8_t, 16> memory{};
  const TaggedBuffer b{0x1000, memory};
  EXPECT_EQ(locate(b, 0x1000, 16)->data(), memory.data());
  EXPECT_EQ(locate(b, 0x100f, 1)->data(), memory.data() + 15);
  EXPECT_EQ(locate(b, 0x0fff, 1).error(), Error::kBaseOrBounds);
  EXPECT_EQ(locate(b, 0x1000, 17).error(), Error::kBaseOrBounds);
  EXPECT_EQ(locate(b, 0x1010, 1).error(), Error::kBaseOrBounds);
  EXPECT_EQ(locate(b, ~uint64_t{0}, 2).error(), Error::kToWrap);
  EXPECT_EQ(locate(b, ~uint64_t{0} - 5, 0xffff'ffff).error(), Error::kToWrap);
  EXPECT_TRUE(locate(b, 0, 0)->empty()) << "zero length is never checked";
}

TEST(ReceiveQueue, AssignedBuffersComeWithTheirMessages) {
  ReceiveQueue r(3, 4, LlpOrder::kAnyOrder);
  std::array<uint8_t, 8> a{}, b{};
  EXPECT_FALSE(r.wants_buffer(0)) << "delivered long ago";
  EXPECT_TRUE(r.wants_buffer(3));
  EXPECT_FALSE(r.wants_buffer(4)) << "beyond the queue";
  r.assign(3, 10, list_of(a));
  EXPECT_FALSE(r.wants_buffer(3));
  EXPECT_TRUE(r.wants_buffer(2));
  EXPECT_EQ(r.locate(header(2, 0, true), 0, Into::kBuffer).error(), Error::kNoBuffer);
  r.assign(1, 11, list_of(b));
  ASSERT_TRUE(r.locate(header(1, 0, true), 8, Into::kBuffer));
  r.note_placed(header(1, 0, true), 8);
  EXPECT_EQ(r.deliver()->cookie, 11u);
  EXPECT_FALSE(r.deliver());
  EXPECT_EQ(r.take_back(), 10u) << "the one passed over has none to give";
  EXPECT_FALSE(r.take_back());

  ReceiveQueue in_order(3, 4, LlpOrder::kInOrder);
  EXPECT_TRUE(in_order.wants_buffer(1));
  EXPECT_FALSE(in_order.wants_buffer(2));
}

}  // namespace
}  // namespace ddpsock::ddp
