// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What perftest's two ends tell each other over the control connection (with -R: RDMA Sends), as
// its release 4.5 writes it. Every message is one Send; each exchange is one from the client and
// one of the same length from the server. Numbers are big-endian but where it says otherwise.
//
//   version    16 bytes, text, padded with 0: "6.06"
//   cycle      4 bytes: length of the piece of memory that small messages go round in
//   line       4 bytes: cache line
//   MTU        2 bytes, text: '1' to '5' for 256 to 4096, and 0
//   key        56 bytes, Key below; also the "hand shake" that keeps both ends in step
//   report     8 bytes each, one exchange each: size, iterations, peak, average, messages a second
//              (the last three are doubles)
#ifndef DDPSOCK_TOOLS_PERF_EXCHANGE_H_
#define DDPSOCK_TOOLS_PERF_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace ddpsock::perf {

inline constexpr size_t kVersionSize = 16;
inline constexpr size_t kCycleSize = 4;
inline constexpr size_t kLineSize = 4;
inline constexpr size_t kMtuSize = 2;
inline constexpr size_t kKeySize = 56;
inline constexpr size_t kReportFieldSize = 8;
inline constexpr size_t kMaxExchangeSize = kKeySize;

// The version of the exchange that this file describes, and the oldest that perftest talks to.
inline constexpr const char* kVersion = "6.06";
inline constexpr double kLeastVersion = 5.70;

// Where the other end may write or read, and what InfiniBand would want to know.
struct Key {
  uint32_t stag = 0;
  uint64_t to = 0;
  uint32_t reads = 1;  // outstanding Reads
  uint32_t qp = 0;
  uint32_t psn = 0;
  uint32_t gid_index = 0;
  bool operator==(const Key&) const = default;
};

std::array<uint8_t, kKeySize> encode(const Key& key);
Key decode_key(std::span<const uint8_t, kKeySize> bytes);

std::array<uint8_t, kVersionSize> encode_version();
// Nothing: not a number.
std::optional<double> decode_version(std::span<const uint8_t, kVersionSize> bytes);

// What the measuring end found.
struct Report {
  uint64_t size = 0;
  uint64_t iterations = 0;
  double peak = 0;
  double mib_per_second = 0;
  double mega_messages_per_second = 0;
};
inline constexpr size_t kReportFields = 5;
using ReportField = std::array<uint8_t, kReportFieldSize>;

std::array<ReportField, kReportFields> encode(const Report& report);
Report decode_report(const std::array<ReportField, kReportFields>& fields);

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_EXCHANGE_H_
