// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace ddpsock::base {
namespace {

TEST(Bytes, StoresBigEndianAndAdvances) {
  std::array<uint8_t, 15> out;
  out.fill(0xa5);
  uint8_t* p = store_be16(out.data(), 0x0102);
  p = store_be32(p, 0x03040506);
  p = store_be64(p, 0x0708090a0b0c0d0e);
  EXPECT_EQ(p, out.data() + 14);
  for (uint8_t i = 0; i < 14; ++i) EXPECT_EQ(out[i], i + 1);
  EXPECT_EQ(out[14], 0xa5);
}

TEST(Bytes, LoadsWhatItStoredAtAnyAlignment) {
  std::array<uint8_t, 16> out{};
  for (size_t at = 0; at < 8; ++at) {
    store_be64(out.data() + at, 0x8182838485868788);
    EXPECT_EQ(load_be64(out.data() + at), 0x8182838485868788);
    EXPECT_EQ(load_be32(out.data() + at), 0x81828384u);
    EXPECT_EQ(load_be16(out.data() + at), 0x8182u);
  }
}

TEST(Bytes, LittleEndianIsForTheCrcWord) {
  std::array<uint8_t, 4> out{};
  store_le32(out.data(), 0x8a9136aa);
  EXPECT_EQ(out, (std::array<uint8_t, 4>{0xaa, 0x36, 0x91, 0x8a}));
  EXPECT_EQ(load_le32(out.data()), 0x8a9136aau);
}

}  // namespace
}  // namespace ddpsock::base
