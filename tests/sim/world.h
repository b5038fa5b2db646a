// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_SIM_WORLD_H_
#define DDPSOCK_TESTS_SIM_WORLD_H_

#include <array>
#include <cstdint>
#include <string>

#include "tests/sim/scenario.h"

namespace ddpsock::sim {

struct Outcome {
  std::string failure;                  // the first invariant that did not hold, or ""
  std::string story;                    // for -v
  std::array<uint64_t, 2> octets_sent;  // by each end
  bool was_cut_short = false;           // damage had stopped it; it was aborted and ended
};

// Runs one connection from start to end in virtual time. Same scenario, same outcome.
Outcome run(const Scenario& scenario, bool wants_story = false);

}  // namespace ddpsock::sim

#endif  // DDPSOCK_TESTS_SIM_WORLD_H_
