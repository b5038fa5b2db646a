// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/fpdu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/vectors/vectors.h"

namespace ddpsock::mpa {
namespace {

std::vector<uint8_t> framed(Bytes ulpdu, bool has_crc) {
  const auto length = static_cast<uint16_t>(ulpdu.size());
  std::vector<uint8_t> fpdu(fpdu_size(length) + 1, 0xa5);
  uint8_t* place = write_header(fpdu.data(), length);
  std::copy(ulpdu.begin(), ulpdu.end(), place);
  finish_fpdu(MutBytes(fpdu).first(fpdu_size(length)), length, has_crc);
  EXPECT_EQ(fpdu.back(), 0xa5) << "written past the end";
  fpdu.pop_back();
  return fpdu;
}

// Trap 15: CRC32c, reflected, sent little-endian.
TEST(Fpdu, Trap15GoldenVectors) {
  int count = 0;
  for (const auto& v : vectors::read("mpa.txt")) {
    if (v.kind() != "fpdu") continue;
    SCOPED_TRACE(v.name());
    const std::vector<uint8_t> wire = v.bytes();
    EXPECT_EQ(framed(v.hex("ulpdu"), true), wire);
    EXPECT_EQ(ulpdu_length_at(wire.data()), v.number("ulpdu-length"));
    EXPECT_EQ(size_at(wire.data()), wire.size());
    EXPECT_EQ(pad_size(v.number("ulpdu-length")), v.number("pad"));
    EXPECT_TRUE(is_crc_right(wire));
    EXPECT_TRUE(std::ranges::equal(ulpdu_of(wire), v.hex("ulpdu")));
    EXPECT_EQ(base::load_le32(wire.data() + wire.size() - MPA_CRC_SIZE), v.number("crc"));
    ++count;
  }
  EXPECT_GE(count, 3);
}

TEST(Fpdu, Trap15CrcOf32ZeroBytes) {
  const auto v = vectors::find("mpa.txt", "crc-32-zero-bytes");
  std::vector<uint8_t> word(MPA_CRC_SIZE, 0xa5);
  base::store_le32(word.data(), base::crc32c(v.hex("over")));
  EXPECT_EQ(word, v.bytes());
}

// Trap 14: the pad is the complement of the remainder, zero, and the CRC word is there without CRC
// too.
TEST(Fpdu, Trap14PadAndCrcWordForEveryRemainder) {
  const std::vector<uint8_t> pad_of{2, 1, 0, 3};
  for (uint16_t n = 0; n <= 67; ++n) {
    EXPECT_EQ(pad_size(n), pad_of[n % 4]);
    EXPECT_EQ(fpdu_size(n), 2u + n + pad_of[n % 4] + 4u);
    const std::vector<uint8_t> ulpdu(n, 0xff);
    const std::vector<uint8_t> on = framed(ulpdu, true), off = framed(ulpdu, false);
    ASSERT_EQ(on.size(), off.size());
    EXPECT_TRUE(std::equal(on.begin(), on.end() - MPA_CRC_SIZE, off.begin()));
    EXPECT_TRUE(std::all_of(on.begin() + 2 + n, on.end() - MPA_CRC_SIZE,
                            [](uint8_t octet) { return octet == 0; }));
  }
  EXPECT_EQ(fpdu_size(MPA_MAX_ULPDU), 65544u);
}

TEST(Fpdu, EveryFlippedBitBreaksTheCrc) {
  std::vector<uint8_t> fpdu = framed(std::vector<uint8_t>(21, 0x5c), true);
  for (size_t bit = 16; bit < fpdu.size() * 8; ++bit) {
    fpdu[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_FALSE(is_crc_right(fpdu)) << "bit " << bit;
    fpdu[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  EXPECT_TRUE(is_crc_right(fpdu));
}

// Trap 16: MULPDU = EMSS - (6 + EMSS mod 4), less 4 * ceil(EMSS / 512) with Markers, never below
// 128.
TEST(Fpdu, Trap16Mulpdu) {
  EXPECT_EQ(mulpdu(1448, false), 1442);
  EXPECT_EQ(mulpdu(1460, false), 1454);
  EXPECT_EQ(mulpdu(1449, false), 1442);
  EXPECT_EQ(mulpdu(1448, true), 1430);
  EXPECT_EQ(mulpdu(512, true), 502);
  EXPECT_EQ(mulpdu(513, true), 498);
  EXPECT_EQ(mulpdu(0, false), 128);
  EXPECT_EQ(mulpdu(134, false), 128 - 0);
  EXPECT_EQ(mulpdu(136, false), 130);
  EXPECT_EQ(mulpdu(1'000'000, false), MPA_MAX_ULPDU);
  EXPECT_EQ(mulpdu(1'000'000, true), MPA_MAX_ULPDU_WITH_MARKERS);
}

TEST(Fpdu, AnFpduOfMulpduFitsTheSegment) {
  for (size_t emss = 160; emss < 9000; ++emss) {
    const size_t n = mulpdu(emss, false);
    EXPECT_LE(fpdu_size(n), emss);
    EXPECT_GT(fpdu_size(n + MPA_ALIGNMENT), emss - emss % 4);
    const size_t m = mulpdu(emss, true);
    const size_t markers = (emss + MPA_MARKER_INTERVAL - 1) / MPA_MARKER_INTERVAL;
    EXPECT_LE(fpdu_size(m) + markers * MPA_MARKER_SIZE, emss);
  }
}

}  // namespace
}  // namespace ddpsock::mpa
