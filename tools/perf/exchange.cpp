// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/exchange.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

namespace ddpsock::perf {
namespace {

// The key is perftest's C struct, each number by itself turned around: offsets are those of x86-64.
constexpr size_t kReadsAt = 4;
constexpr size_t kQpAt = 8;
constexpr size_t kPsnAt = 12;
constexpr size_t kStagAt = 16;
constexpr size_t kToAt = 24;
constexpr size_t kGidIndexAt = 52;

ReportField field_of(uint64_t value) {
  ReportField field;
  base::store_be64(field.data(), value);
  return field;
}

ReportField field_of(double value) {
  return field_of(std::bit_cast<uint64_t>(value));
}

}  // namespace

std::array<uint8_t, kKeySize> encode(const Key& key) {
  std::array<uint8_t, kKeySize> bytes{};
  base::store_be32(&bytes[kReadsAt], key.reads);
  base::store_be32(&bytes[kQpAt], key.qp);
  base::store_be32(&bytes[kPsnAt], key.psn);
  base::store_be32(&bytes[kStagAt], key.stag);
  base::store_be64(&bytes[kToAt], key.to);
  base::store_be32(&bytes[kGidIndexAt], key.gid_index);
  return bytes;
}

Key decode_key(std::span<const uint8_t, kKeySize> bytes) {
  return {.stag = base::load_be32(&bytes[kStagAt]),
          .to = base::load_be64(&bytes[kToAt]),
          .reads = base::load_be32(&bytes[kReadsAt]),
          .qp = base::load_be32(&bytes[kQpAt]),
          .psn = base::load_be32(&bytes[kPsnAt]),
          .gid_index = base::load_be32(&bytes[kGidIndexAt])};
}

std::array<uint8_t, kVersionSize> encode_version() {
  std::array<uint8_t, kVersionSize> bytes{};
  std::memcpy(bytes.data(), kVersion, std::strlen(kVersion));
  return bytes;
}

std::optional<double> decode_version(std::span<const uint8_t, kVersionSize> bytes) {
  const std::string text(bytes.begin(), std::find(bytes.begin(), bytes.end(), 0));
  char* end = nullptr;
  const double version = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != 0 || !std::isfinite(version)) return std::nullopt;
  return version;
}

std::array<ReportField, kReportFields> encode(const Report& report) {
  return {field_of(report.size), field_of(report.iterations), field_of(report.peak),
          field_of(report.mib_per_second), field_of(report.mega_messages_per_second)};
}

Report decode_report(const std::array<ReportField, kReportFields>& fields) {
  const auto number = [&](size_t i) { return base::load_be64(fields[i].data()); };
  const auto real = [&](size_t i) { return std::bit_cast<double>(number(i)); };
  return {.size = number(0),
          .iterations = number(1),
          .peak = real(2),
          .mib_per_second = real(3),
          .mega_messages_per_second = real(4)};
}

}  // namespace ddpsock::perf
