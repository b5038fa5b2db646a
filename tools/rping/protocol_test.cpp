// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/rping/protocol.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddpsock::rping {
namespace {

std::vector<uint8_t> filled(size_t size, uint32_t ping) {
  std::vector<uint8_t> data(size, 0xa5);
  fill(data, ping);
  return data;
}

std::string text(size_t size, uint32_t ping) {
  return to_text(filled(size, ping));
}

TEST(RpingProtocol, AdvertIsBigEndian) {
  const Advert advert{.to = 0x0102030405060708, .stag = 0x11121314, .size = 0x21222324};
  const Message message{0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
                        0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24};
  EXPECT_EQ(encode(advert), message);
  EXPECT_EQ(decode(message), advert);
}

// As `rping -v` of rdma-core 44 prints them.
TEST(RpingProtocol, DataIsWhatRpingSends) {
  EXPECT_EQ(text(64, 0), "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr");
  EXPECT_EQ(text(64, 1), "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs");
  // The letters start again after 'z', within a ping and over many.
  EXPECT_EQ(text(80, 57),
            "rdma-ping-57: zABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEF");
  EXPECT_EQ(text(32, 58), "rdma-ping-58: ABCDEFGHIJKLMNOPQ");
}

TEST(RpingProtocol, DataIsCutToItsSize) {
  EXPECT_EQ(filled(1, 5), std::vector<uint8_t>{0});
  EXPECT_EQ(filled(2, 5), (std::vector<uint8_t>{'r', 0}));
  EXPECT_EQ(text(14, 5), "rdma-ping-5: ");
  EXPECT_EQ(text(15, 5), "rdma-ping-5: F");
  fill({}, 0);
}

TEST(RpingProtocol, SourceIsRefusedIfItCannotBeRead) {
  EXPECT_TRUE(check_source({.to = 0, .stag = 0, .size = 64}, 64));
  EXPECT_TRUE(check_source({.to = ~uint64_t{0} - 63, .size = 64}, 64));
  EXPECT_FALSE(check_source({.to = ~uint64_t{0} - 62, .size = 64}, 64));
  EXPECT_FALSE(check_source({.size = 0}, 64));
  EXPECT_FALSE(check_source({.size = 65}, 64));
  EXPECT_FALSE(check_source({.size = ~uint32_t{0}}, 64));
}

TEST(RpingProtocol, SinkIsRefusedIfItCannotBeWritten) {
  EXPECT_TRUE(check_sink({.size = 64}, 64));
  EXPECT_TRUE(check_sink({.size = 100}, 64));
  EXPECT_FALSE(check_sink({.size = 63}, 64));
  EXPECT_FALSE(check_sink({.size = 0}, 64));
  EXPECT_FALSE(check_sink({.to = ~uint64_t{0}, .size = 64}, 64));
}

TEST(RpingProtocol, ComparisonTellsTheFirstDifference) {
  std::vector<uint8_t> data = filled(64, 0);
  EXPECT_TRUE(compare(data, filled(64, 0)));
  data[63] = 1;
  const auto compared = compare(data, filled(64, 0));
  ASSERT_FALSE(compared);
  EXPECT_EQ(compared.error().text, "byte 63 of 64 is 0x01 and should be 0x00");
}

TEST(RpingProtocol, TextHasNoControlCharacters) {
  EXPECT_EQ(to_text(std::vector<uint8_t>{'a', 0x1b, 0xff, '~', 0, 'b'}), "a\\x1b\\xff~");
  EXPECT_EQ(to_text({}), "");
}

}  // namespace
}  // namespace ddpsock::rping
