// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/raw_message.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddpsock::engine {
namespace {

using Buffer = std::vector<uint8_t>;

Buffer ulpdu(ddp::UntaggedHeader header, uint32_t kind, size_t rest = 0) {
  Buffer b(DDP_UNTAGGED_HEADER_SIZE + DDPSOCK_RAW_SIZE + rest, 0x5a);
  uint8_t* p = ddp::write_header(b.data(), header);
  base::store_be32(base::store_be32(p, kind), 9);
  return b;
}
constexpr ddp::UntaggedHeader kHeader{.is_last = true,
                                      .rsvd_ulp = {RDMAP_CTRL_IETF | RDMAP_OP_SEND_SE, 0},
                                      .qn = RDMAP_QN_SEND,
                                      .msn = 7,
                                      .mo = 0};

TEST(RawMessage, IsDecoded) {
  const Buffer mark = ulpdu(kHeader, DDPSOCK_RAW_MARK);
  const auto m = decode_raw(mark, 7);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->kind, DDPSOCK_RAW_MARK);
  EXPECT_EQ(m->number, 9u);
  EXPECT_TRUE(m->rest.empty());
  const Buffer ask = ulpdu(kHeader, DDPSOCK_RAW_ASK, 3);
  const auto a = decode_raw(ask, 7);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->kind, DDPSOCK_RAW_ASK);
  EXPECT_EQ(a->rest.size(), 3u);
  EXPECT_EQ(a->rest.data(), ask.data() + ask.size() - 3);
  const Buffer offer = ulpdu(kHeader, DDPSOCK_RAW_OFFER, DDPSOCK_RAW_OFFER_SIZE);
  const auto o = decode_raw(offer, 7);
  ASSERT_TRUE(o);
  EXPECT_EQ(o->kind, DDPSOCK_RAW_OFFER);
  EXPECT_EQ(o->number, 9u);
  EXPECT_EQ(o->rest.size(), DDPSOCK_RAW_OFFER_SIZE);
}

// Each in memory of its own size, so that a sanitizer sees a look beyond its end.
TEST(RawMessage, EveryTruncationIsNone) {
  for (const uint32_t kind : {DDPSOCK_RAW_ASK, DDPSOCK_RAW_MARK}) {
    const Buffer whole = ulpdu(kHeader, kind);
    for (size_t n = 0; n < whole.size(); ++n)
      EXPECT_FALSE(decode_raw(Buffer(whole.begin(), whole.begin() + static_cast<long>(n)), 7)) << n;
    EXPECT_TRUE(decode_raw(whole, 7));
  }
}

TEST(RawMessage, OtherHeadersAreNone) {
  const auto is_one = [](auto change) {
    ddp::UntaggedHeader header = kHeader;
    change(header);
    const Buffer b = ulpdu(header, DDPSOCK_RAW_MARK);
    return decode_raw(b, 7).has_value();
  };
  EXPECT_TRUE(is_one([](auto&) {}));
  EXPECT_FALSE(is_one([](auto& h) { h.msn = 8; }));
  EXPECT_FALSE(is_one([](auto& h) { h.mo = 1; }));
  EXPECT_FALSE(is_one([](auto& h) { h.is_last = false; }));
  EXPECT_FALSE(is_one([](auto& h) { h.qn = 1; }));
  EXPECT_FALSE(is_one([](auto& h) { h.rsvd_ulp.control = RDMAP_CTRL_IETF | RDMAP_OP_SEND; }));
}

TEST(RawMessage, OtherWordsAreNone) {
  EXPECT_FALSE(decode_raw(ulpdu(kHeader, DDPSOCK_RAW_MARK + 1), 7));
  EXPECT_FALSE(decode_raw(ulpdu(kHeader, DDPSOCK_RAW_MARK, 1), 7));
  EXPECT_TRUE(decode_raw(ulpdu(kHeader, DDPSOCK_RAW_ASK, DDPSOCK_RAW_MAX_RETURNED), 7));
  EXPECT_FALSE(decode_raw(ulpdu(kHeader, DDPSOCK_RAW_ASK, DDPSOCK_RAW_MAX_RETURNED + 1), 7));
  for (const size_t size : {0, DDPSOCK_RAW_OFFER_SIZE - 1, DDPSOCK_RAW_OFFER_SIZE + 1})
    EXPECT_FALSE(decode_raw(ulpdu(kHeader, DDPSOCK_RAW_OFFER, size), 7)) << size;
}

}  // namespace
}  // namespace ddpsock::engine
