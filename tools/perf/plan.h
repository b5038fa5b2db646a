// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is measured, and with which values; both ends are told the same, as with perftest.
#ifndef DDPSOCK_TOOLS_PERF_PLAN_H_
#define DDPSOCK_TOOLS_PERF_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace ddpsock::perf {

enum class Verb : uint8_t { kSend, kWrite, kRead };
enum class Metric : uint8_t { kLatency, kBandwidth };

inline constexpr uint16_t kDefaultPort = 18515;
inline constexpr uint32_t kMaxSize = 1u << 30;
inline constexpr uint32_t kMinIterations = 5;
inline constexpr uint32_t kMaxIterations = 10'000'000;
inline constexpr uint32_t kMaxDepth = 8192;
// Fewer receives could not be told to the sender: perftest does so after each third of them.
inline constexpr uint32_t kMinReceiveDepth = 3;

struct Plan {
  Verb verb = Verb::kSend;
  Metric metric = Metric::kLatency;
  std::string host = {};  // empty: the server
  uint16_t port = kDefaultPort;
  std::vector<uint32_t> sizes = {};
  bool is_sweep = false;  // -a; sends agree about each size then
  uint32_t iterations = 0;
  uint32_t send_depth = 0;
  uint32_t receive_depth = 0;
  uint16_t reads = 0;  // outstanding Reads: IRD and ORD
  bool is_bidirectional = false;
  bool is_sleeping = false;
  bool wants_crc = true;
  uint32_t max_ulpdu = 0;
  bool is_json = false;
  Duration patience = {};     // how long a peer may be silent
  Duration client_wait = {};  // how long a server waits for its client

  bool is_client() const { return !host.empty(); }
  bool is(Verb v, Metric m) const { return verb == v && metric == m; }
  // Both ends of these send; of the others only the client.
  bool is_ping_pong() const { return metric == Metric::kLatency && verb != Verb::kRead; }
  bool is_measuring() const { return is_client() || is_bidirectional || is_ping_pong(); }
  bool receives_messages() const {
    return verb == Verb::kSend && (!is_client() || metric == Metric::kLatency);
  }
};

const char* to_text(Verb verb);
// "send-lat": as on the command line.
std::string to_text(const Plan& plan);

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_PLAN_H_
