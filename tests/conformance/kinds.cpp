// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/bench.h"
#include "tests/conformance/direct_bench.h"
#include "tests/conformance/loopback_bench.h"
#include "tests/conformance/rig.h"
#include "tests/conformance/shm_bench.h"
#include "tests/conformance/user_bench.h"
#include "tests/conformance/wrapped_bench.h"

namespace ddpsock::conformance {
namespace {

std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
  return kind.param.name;
}

INSTANTIATE_TEST_SUITE_P(Engines, Conformance, ::testing::ValuesIn(all_kinds()), name_of);

}  // namespace

std::vector<Kind> all_kinds() {
  return {
      {"loopback", loopback_bytes},
      {"loopback_segments", loopback_segments},
      {"user", user_tcp},
      {"shm", shm},
      {"direct_shm", wrapped<with_direct_way, shm>},
      {"trace_loopback", wrapped<with_trace, loopback_bytes>},
      {"trace_user", wrapped<with_trace, user_tcp>},
      {"pcap_loopback", wrapped<with_pcap, loopback_bytes>},
      {"pcap_user", wrapped<with_pcap, user_tcp>},
      {"fault_loopback", wrapped<with_idle_fault, loopback_bytes>},
      {"fault_user", wrapped<with_idle_fault, user_tcp>},
  };
}

}  // namespace ddpsock::conformance
