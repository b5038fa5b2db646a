// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/segmenter.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace ddpsock::ddp {
namespace {

std::vector<uint8_t> pattern(size_t n) {
  std::vector<uint8_t> v(n);
  std::iota(v.begin(), v.end(), uint8_t{1});
  return v;
}

GatherList list_of(Bytes b) {
  return GatherList(std::span<const Bytes>(&b, 1));
}

TEST(Slices, CutsAcrossRangesAndSkipsEmptyOnes) {
  const std::vector<uint8_t> data = pattern(10);
  const std::array<Bytes, 4> ranges{Bytes(data).first(3), Bytes(), Bytes(data).subspan(3, 1),
                                    Bytes(data).subspan(4)};
  const GatherList all{std::span<const Bytes>(ranges)};
  EXPECT_EQ(all.ranges().size(), 3u);
  for (size_t from = 0; from <= data.size(); ++from) {
    for (size_t n = 0; from + n <= data.size(); ++n) {
      std::vector<uint8_t> got;
      const GatherList part = all.cut(from, n);
      for (const Bytes& r : part.ranges()) got.insert(got.end(), r.begin(), r.end());
      ASSERT_EQ(got, std::vector<uint8_t>(data.begin() + static_cast<ptrdiff_t>(from),
                                          data.begin() + static_cast<ptrdiff_t>(from + n)));
    }
  }
}

TEST(Segmenter, Trap22AZeroLengthMessageIsOneSegmentWithL) {
  Segmenter untagged(UntaggedHeader{.msn = 1}, {});
  ASSERT_FALSE(untagged.is_done());
  const Segment u = untagged.next(128);
  EXPECT_TRUE(untagged.is_done());
  EXPECT_TRUE(u.is_last);
  EXPECT_EQ(u.ulpdu_length(), 18u);
  EXPECT_TRUE(UntaggedView::parse(u.header())->is_last());

  Segmenter tagged(TaggedHeader{.stag = 1}, {});
  const Segment t = tagged.next(128);
  EXPECT_TRUE(tagged.is_done());
  EXPECT_EQ(t.ulpdu_length(), 14u);
  EXPECT_TRUE(TaggedView::parse(t.header())->is_last());
}

TEST(Segmenter, TheExamplesOfRfc5041Section52) {
  const std::vector<uint8_t> data = pattern(2048);
  Segmenter untagged(UntaggedHeader{.msn = 1}, list_of(data));
  Segment s = untagged.next(1500);
  EXPECT_EQ(s.payload.total(), 1482u);
  s = untagged.next(1500);
  EXPECT_EQ(UntaggedView::parse(s.header())->mo(), 1482u);
  EXPECT_EQ(s.payload.total(), 566u);

  Segmenter tagged(TaggedHeader{.stag = 1, .to = 16384}, list_of(data));
  s = tagged.next(1500);
  EXPECT_EQ(s.payload.total(), 1486u);
  s = tagged.next(1500);
  EXPECT_EQ(TaggedView::parse(s.header())->to(), 17870u);
  EXPECT_EQ(s.payload.total(), 562u);
}

TEST(Segmenter, EveryMulpduCoversTheMessageOnceAndSetsLOnceAtTheEnd) {
  const std::vector<uint8_t> data = pattern(400);
  for (uint32_t mulpdu = DDP_MAX_HEADER_SIZE + 1; mulpdu < 450; ++mulpdu) {
    Segmenter m(UntaggedHeader{.rsvd_ulp = {0x43, 9}, .qn = 0, .msn = 0xffffffff}, list_of(data));
    std::vector<uint8_t> got;
    while (!m.is_done()) {
      const Segment s = m.next(mulpdu);
      ASSERT_LE(s.ulpdu_length(), mulpdu);
      const auto h = UntaggedView::parse(s.header())->value();
      EXPECT_EQ(h.mo, got.size());
      EXPECT_EQ(h.msn, 0xffffffffu);
      EXPECT_EQ(h.rsvd_ulp, (RsvdUlp{0x43, 9}));
      for (const Bytes& r : s.payload.ranges()) got.insert(got.end(), r.begin(), r.end());
      EXPECT_EQ(h.is_last, got.size() == data.size());
    }
    EXPECT_EQ(got, data);
  }
}

TEST(Segmenter, TheMulpduMayChangeFromSegmentToSegment) {
  const std::vector<uint8_t> data = pattern(100);
  Segmenter m(TaggedHeader{.stag = 1, .to = 5}, list_of(data));
  EXPECT_EQ(m.next(54).payload.total(), 40u);
  const Segment s = m.next(24);
  EXPECT_EQ(TaggedView::parse(s.header())->to(), 45u);
  EXPECT_EQ(s.payload.total(), 10u);
  EXPECT_EQ(m.next(1000).payload.total(), 50u);
  EXPECT_TRUE(m.is_done());
}

}  // namespace
}  // namespace ddpsock::ddp
