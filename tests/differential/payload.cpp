// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/differential/payload.h"

#include "tests/conformance/rig.h"

namespace ddpsock::differential {
namespace {

constexpr size_t kSourceSize = 512 << 10;
constexpr size_t kLastPayload = 256 << 10;  // begins before it

}  // namespace

const std::vector<uint8_t>& source() {
  static const std::vector<uint8_t> octets = conformance::pattern(kSourceSize);
  return octets;
}

Bytes payload_of(const Work& w) {
  return Bytes(source()).subspan(w.value % kLastPayload, w.length);
}

}  // namespace ddpsock::differential
