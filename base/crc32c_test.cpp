// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

namespace ddpsock::base {
namespace {

Bytes bytes_of(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

class Crc32c : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      ASSERT_STREQ(crc32c_init(), "isa-l") << "libisal2 is a dependency of the tests";
    }
  }
  uint32_t crc(uint32_t c, Bytes b) {
    return GetParam() ? crc32c_extend(c, b) : crc32c_extend_table(c, b);
  }
};

TEST_P(Crc32c, KnownValues) {
  EXPECT_EQ(crc(kCrc32cInit, {}), kCrc32cInit);
  EXPECT_EQ(crc(kCrc32cInit, bytes_of("123456789")), 0xe3069283u);
  const std::vector<uint8_t> zeros(32, 0), ones(32, 0xff);
  EXPECT_EQ(crc(kCrc32cInit, zeros), 0x8a9136aau);  // RFC 3720 appendix B.4
  EXPECT_EQ(crc(kCrc32cInit, ones), 0x62a8ab43u);
}

TEST_P(Crc32c, ExtendEqualsWhole) {
  std::vector<uint8_t> data(1031);
  std::iota(data.begin(), data.end(), uint8_t{3});
  const uint32_t whole = crc32c_extend_table(kCrc32cInit, data);
  for (size_t cut = 0; cut <= data.size(); cut += 7) {
    const uint32_t head = crc(kCrc32cInit, Bytes(data).first(cut));
    EXPECT_EQ(crc(head, Bytes(data).subspan(cut)), whole) << "cut at " << cut;
  }
}

using CopyFunction = uint32_t (*)(uint32_t, uint8_t*, Bytes);

void expect_copies(CopyFunction copy) {
  std::vector<uint8_t> source(70'000);
  uint32_t next = 1;
  for (uint8_t& byte : source) byte = static_cast<uint8_t>((next = next * 1'664'525 + 1) >> 24);
  for (size_t size = 0; size < source.size() - 64; size += size < 1100 ? 1 : 9973) {
    const Bytes from = Bytes(source).subspan(size % 61, size);
    std::vector<uint8_t> room(size + 128, 0xee);
    uint8_t* const to = room.data() + 64 - size % 7;
    const uint32_t before = static_cast<uint32_t>(size) * 2'654'435'761u;
    ASSERT_EQ(copy(before, to, from), crc32c_extend_table(before, from)) << size;
    ASSERT_TRUE(std::equal(from.begin(), from.end(), to)) << size;
    ASSERT_EQ(to[-1], 0xee) << size;
    ASSERT_EQ(to[size], 0xee) << size;
  }
}

// Wherever both lie within a vector; `to` with a vector of others' bytes on either side.
void expect_copies_anywhere(CopyFunction copy) {
  constexpr size_t kMost = 300, kVector = 64;
  std::vector<uint8_t> source(kMost + kVector), room(kMost + 3 * kVector, 0xee);
  std::iota(source.begin(), source.end(), uint8_t{3});
  for (size_t size = 0; size <= kMost; ++size) {
    for (size_t skew = 0; skew < kVector; ++skew) {
      const Bytes from = Bytes(source).subspan(skew, size);
      const uint32_t crc = crc32c_extend_table(kCrc32cInit, from);
      for (size_t place = kVector; place < 2 * kVector; ++place) {
        const MutBytes to = MutBytes(room).subspan(place, size);
        ASSERT_EQ(copy(kCrc32cInit, to.data(), from), crc) << size << ' ' << skew << ' ' << place;
        ASSERT_TRUE(std::ranges::equal(from, to)) << size << ' ' << skew << ' ' << place;
        std::ranges::fill(to, uint8_t{0xee});
      }
    }
    ASSERT_EQ(std::ranges::count(room, 0xee), static_cast<ptrdiff_t>(room.size())) << size;
  }
}

TEST(Crc32cCopy, InPieces) {
  expect_copies(crc32c_copy_in_pieces);
  expect_copies_anywhere(crc32c_copy_in_pieces);
}

TEST(Crc32cCopy, InOnePass) {
  if (!crc32c_copy_init()) GTEST_SKIP() << "not on this processor";
  expect_copies(crc32c_copy);
  expect_copies_anywhere(crc32c_copy);
}

// Whatever version of the source it took, it is that of the copy.
TEST(Crc32cCopy, OfASourceThatChanges) {
  crc32c_init();
  std::vector<uint8_t> source(8192), to(source.size());
  std::atomic<bool> is_over{false};
  std::thread changer([&] {
    for (uint8_t i = 0; !is_over; ++i)
      for (uint8_t& byte : source) std::atomic_ref(byte).store(i, std::memory_order_relaxed);
  });
  for (int round = 0; round < 20'000; ++round) {
    const uint32_t crc = crc32c_copy(kCrc32cInit, to.data(), source);
    EXPECT_EQ(crc, crc32c(to)) << round;
    if (HasFailure()) break;
  }
  is_over = true;
  changer.join();
}

INSTANTIATE_TEST_SUITE_P(Implementations, Crc32c, testing::Bool(),
                         [](const auto& p) { return p.param ? "isal" : "table"; });

}  // namespace
}  // namespace ddpsock::base
