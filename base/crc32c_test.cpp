// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
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

INSTANTIATE_TEST_SUITE_P(Implementations, Crc32c, testing::Bool(),
                         [](const auto& p) { return p.param ? "isal" : "table"; });

}  // namespace
}  // namespace ddpsock::base
