// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/vectors/vectors.h"

namespace ddpsock::ddp {
namespace {

TaggedHeader tagged_fields(const vectors::Vector& v) {
  return {v.flag("last"), static_cast<uint8_t>(v.number("rsvdulp")),
          static_cast<uint32_t>(v.number("stag")), v.number("to")};
}

UntaggedHeader untagged_fields(const vectors::Vector& v) {
  return {
      v.flag("last"),
      {static_cast<uint8_t>(v.number("rsvdulp")), static_cast<uint32_t>(v.number("rsvdulp-word"))},
      static_cast<uint32_t>(v.number("qn")),
      static_cast<uint32_t>(v.number("msn")),
      static_cast<uint32_t>(v.number("mo"))};
}

template <typename View, typename Header>
void expect_vector(const vectors::Vector& v, const Header& fields) {
  const std::vector<uint8_t> wire = v.bytes();
  const auto view = View::parse(wire);
  ASSERT_TRUE(view.has_value()) << v.name();
  EXPECT_EQ(view->value(), fields) << v.name();
  const std::vector<uint8_t> payload = v.hex("payload");
  EXPECT_TRUE(std::ranges::equal(view->after_header(), payload)) << v.name();
  EXPECT_EQ(view->header().size(), header_size(wire[0]));

  if (v.has("re-encodes") && !v.flag("re-encodes")) return;
  std::vector<uint8_t> out(wire.size() - payload.size() + 1, 0xa5);
  ASSERT_EQ(encode(MutBytes(out), fields), view->header().size());
  EXPECT_TRUE(std::equal(view->header().begin(), view->header().end(), out.begin())) << v.name();
  EXPECT_EQ(out.back(), 0xa5) << "wrote past the header";
}

TEST(Segment, GoldenVectors) {
  for (const vectors::Vector& v : vectors::read("ddp.txt")) {
    const bool is_tagged_kind = v.kind() == "tagged";
    if (v.has("error")) {
      const std::vector<uint8_t> wire = v.bytes();
      EXPECT_FALSE(is_tagged_kind ? TaggedView::parse(wire).has_value()
                                  : UntaggedView::parse(wire).has_value())
          << v.name();
    } else if (is_tagged_kind) {
      expect_vector<TaggedView>(v, tagged_fields(v));
    } else {
      expect_vector<UntaggedView>(v, untagged_fields(v));
    }
  }
}

TEST(Segment, EveryTruncationOfATaggedHeaderFails) {
  std::vector<uint8_t> wire(DDP_TAGGED_HEADER_SIZE, 0xa5);
  ASSERT_TRUE(encode(MutBytes(wire), TaggedHeader{true, 0x40, 1, 2}));
  for (size_t n = 0; n < wire.size(); ++n) {
    EXPECT_EQ(TaggedView::parse(Bytes(wire).first(n)).error(), Error::kLocalCatastrophic) << n;
  }
  EXPECT_TRUE(TaggedView::parse(wire));
}

TEST(Segment, EveryTruncationOfAnUntaggedHeaderFails) {
  std::vector<uint8_t> wire(DDP_UNTAGGED_HEADER_SIZE, 0xa5);
  ASSERT_TRUE(encode(MutBytes(wire), UntaggedHeader{true, {0x43, 0}, 0, 1, 0}));
  for (size_t n = 0; n < wire.size(); ++n) {
    EXPECT_EQ(UntaggedView::parse(Bytes(wire).first(n)).error(), Error::kLocalCatastrophic) << n;
  }
  EXPECT_TRUE(UntaggedView::parse(wire));
}

TEST(Segment, AnEncoderRefusesAShortBufferAndWritesNothing) {
  std::vector<uint8_t> out(DDP_UNTAGGED_HEADER_SIZE - 1, 0xa5);
  EXPECT_FALSE(encode(MutBytes(out), UntaggedHeader{}));
  EXPECT_FALSE(encode(MutBytes(out).first(DDP_TAGGED_HEADER_SIZE - 1), TaggedHeader{}));
  EXPECT_TRUE(std::ranges::all_of(out, [](uint8_t b) { return b == 0xa5; }));
}

TEST(Segment, AViewOfTheOtherKindIsRefused) {
  const std::vector<uint8_t> tagged(DDP_UNTAGGED_HEADER_SIZE, 0xc1);
  const std::vector<uint8_t> untagged(DDP_UNTAGGED_HEADER_SIZE, 0x41);
  EXPECT_FALSE(UntaggedView::parse(tagged));
  EXPECT_FALSE(TaggedView::parse(untagged));
}

TEST(Segment, Trap19ControlByteIsTLReservedDv) {
  std::vector<uint8_t> out(DDP_MAX_HEADER_SIZE, 0xa5);
  write_header(out.data(), TaggedHeader{.is_last = true});
  EXPECT_EQ(out[0], 0xc1);
  write_header(out.data(), TaggedHeader{.is_last = false});
  EXPECT_EQ(out[0], 0x81);
  write_header(out.data(), UntaggedHeader{.is_last = true});
  EXPECT_EQ(out[0], 0x41);
  write_header(out.data(), UntaggedHeader{.is_last = false});
  EXPECT_EQ(out[0], 0x01);
}

TEST(Segment, ErrorsHaveTheNumbersOfRfc5041Section72) {
  EXPECT_EQ(error_type(Error::kToWrap), 1);
  EXPECT_EQ(error_code(Error::kToWrap), 3);
  EXPECT_EQ(error_type(Error::kTooLong), 2);
  EXPECT_EQ(error_code(Error::kTooLong), 5);
  EXPECT_EQ(error_type(Error::kLocalCatastrophic), 0);
  EXPECT_STREQ(to_string(Error::kInvalidMo), "untagged buffer error: invalid MO");
}

}  // namespace
}  // namespace ddpsock::ddp
