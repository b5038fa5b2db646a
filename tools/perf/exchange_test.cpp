// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/exchange.h"

#include <gtest/gtest.h>

#include <limits>
#include <string_view>

#include "tools/perf/report.h"

namespace ddpsock::perf {
namespace {

// As perftest 4.5 sent it over siw: offsets 4 reads, 8 QP, 12 PSN, 16 STag, 24 TO, 52 GID index.
TEST(Exchange, WritesKeysAsPerftestDoes) {
  const Key key{.stag = 0x11223344,
                .to = 0x0102030405060708,
                .reads = 128,
                .qp = 0x2a,
                .psn = 0xabcdef,
                .gid_index = 1};
  const std::array<uint8_t, kKeySize> wire{
      0,    0,    0,    0,    0, 0, 0, 0x80, 0, 0, 0, 0x2a, 0, 0xab, 0xcd, 0xef,  //
      0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0,    1, 2, 3, 4,    5, 6,    7,    8,     //
      0,    0,    0,    0,    0, 0, 0, 0,    0, 0, 0, 0,    0, 0,    0,    0,     //
      0,    0,    0,    0,    0, 0, 0, 1};
  EXPECT_EQ(encode(key), wire);
  EXPECT_EQ(decode_key(wire), key);
}

std::optional<double> version_of(std::string_view text) {
  std::array<uint8_t, kVersionSize> bytes{};
  std::copy(text.begin(), text.end(), bytes.begin());
  return decode_version(bytes);
}

TEST(Exchange, ReadsVersions) {
  EXPECT_DOUBLE_EQ(*decode_version(encode_version()), 6.06);
  EXPECT_DOUBLE_EQ(*version_of("5.70"), 5.70);
  EXPECT_DOUBLE_EQ(*version_of("1234567890123456"), 1234567890123456.0);  // no room for a 0
  EXPECT_FALSE(version_of(""));
  EXPECT_FALSE(version_of("GET / HTTP/1.0\r\n"));
  EXPECT_FALSE(version_of("6.06x"));
  EXPECT_FALSE(version_of("nan"));
  EXPECT_FALSE(version_of("inf"));
}

TEST(Exchange, KeepsReports) {
  const Report report{.size = 65536,
                      .iterations = 1000,
                      .peak = 1.5,
                      .mib_per_second = 1234.5,
                      .mega_messages_per_second = 0.25};
  const auto fields = encode(report);
  const ReportField size{0, 0, 0, 0, 0, 1, 0, 0};
  const ReportField peak{0x3f, 0xf8, 0, 0, 0, 0, 0, 0};  // IEEE 754, big-endian
  EXPECT_EQ(fields[0], size);
  EXPECT_EQ(fields[2], peak);
  const Report back = decode_report(fields);
  EXPECT_EQ(back.iterations, 1000u);
  EXPECT_EQ(back.mib_per_second, 1234.5);
  EXPECT_EQ(back.mega_messages_per_second, 0.25);
}

Posted posted_after(std::initializer_list<int64_t> gaps_ns) {
  Posted posted{Time{0}};
  for (int64_t gap : gaps_ns) posted.push_back(posted.back() + Duration{gap});
  return posted;
}

TEST(Statistics, LeaveTheTwoLongestOut) {
  const auto s = statistics_of(posted_after({3000, 1000, 90'000, 2000, 80'000, 4000}), false);
  EXPECT_DOUBLE_EQ(s.least, 1);
  EXPECT_DOUBLE_EQ(s.most, 4);
  EXPECT_DOUBLE_EQ(s.median, 2.5);
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_DOUBLE_EQ(s.p99, 4);
  EXPECT_NEAR(s.deviation, 1.118, 0.001);
}

TEST(Statistics, HalveARoundTrip) {
  EXPECT_DOUBLE_EQ(statistics_of(posted_after({2000, 2000, 2000, 9000, 9000}), true).median, 1);
  EXPECT_DOUBLE_EQ(statistics_of(posted_after({2000}), true).median, 1);
  EXPECT_DOUBLE_EQ(statistics_of(Posted{Time{0}}, true).median, 0);
}

TEST(Statistics, CountBinaryMegabytes) {
  Plan plan;
  plan.iterations = 1024;
  const Report r = report_of(plan, 1024, Duration::from_ms(500));
  EXPECT_DOUBLE_EQ(r.mib_per_second, 2);
  EXPECT_DOUBLE_EQ(r.mega_messages_per_second, 0.002048);
}

}  // namespace
}  // namespace ddpsock::perf
