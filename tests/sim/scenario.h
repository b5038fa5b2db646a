// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What happens in one simulated connection: the link's faults and both ends' work, all from a seed.
#ifndef DDPSOCK_TESTS_SIM_SCENARIO_H_
#define DDPSOCK_TESTS_SIM_SCENARIO_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/loopback/network.h"
#include "engine/wrap/fault.h"

namespace ddpsock::sim {

enum class Kind : uint8_t { kSend, kImmediate, kWrite, kRead, kFetchAdd, kInvalidate };

struct Op {
  Kind kind = Kind::kSend;
  uint32_t size = 0;
  uint32_t offset = 0;  // Write: in the peer's grant; Read: in its source and in our sink
  bool is_solicited = false;
  bool is_signalled = true;
  bool has_fence = false;
  bool is_inline = false;

  // Whether the peer's receive queue delivers it.
  bool is_received() const {
    return kind == Kind::kSend || kind == Kind::kImmediate || kind == Kind::kInvalidate;
  }
};

struct Work {
  std::vector<Op> ops;
  uint32_t written = 0;  // bytes of the peer's grant that the Writes fill, each its own
  uint32_t read = 0;     // bytes of the peer's source that the Reads cover
};

struct Scenario {
  uint64_t seed = 0;
  engine::loopback::LinkAttr link;
  engine::wrap::FaultRates faults;  // of the wrapper around both engines
  uint16_t depth = 1;               // IRD and ORD
  bool has_crc = true;
  bool has_markers = false;
  uint32_t max_ulpdu = 0;
  // The responder posts so many receives too few: the peer's last Sends find none.
  uint32_t missing_receives = 0;
  std::array<Work, 2> work;  // of the initiator, of the responder

  // The lower layer keeps its promise and the ULPs theirs: everything must succeed.
  bool is_healthy() const;
  // Bytes may change on the way without anybody noticing.
  bool has_silent_damage() const;
};

Scenario make_scenario(uint64_t seed);
// The small exchange that is run with every pair of cuts.
Scenario make_small(bool has_markers);

std::string describe(const Scenario& s);
std::string describe(const Op& op);

// Byte `i` of the message that is op number `op` of end `end`.
constexpr uint8_t payload_byte(int end, size_t op, size_t i) {
  return static_cast<uint8_t>(static_cast<size_t>(end) * 101 + op * 31 + i * 7 + (i >> 8) + 1);
}

}  // namespace ddpsock::sim

#endif  // DDPSOCK_TESTS_SIM_SCENARIO_H_
