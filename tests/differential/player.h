// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Plays a script over one kind of engine and notes all that a program could see.
#ifndef DDPSOCK_TESTS_DIFFERENTIAL_PLAYER_H_
#define DDPSOCK_TESTS_DIFFERENTIAL_PLAYER_H_

#include <string>
#include <vector>

#include "tests/conformance/bench.h"
#include "tests/differential/script.h"

namespace ddpsock::differential {

struct Observed {
  // In an order that does not depend on who was faster. Of a script whose ending leaves the outcome
  // open only what was determined before that.
  std::vector<std::string> lines;
  // What engine/engine.h does not allow, whatever the others do; empty: nothing was seen.
  std::string broken;
};

Observed play(const Script& script, const conformance::Kind& kind);

}  // namespace ddpsock::differential

#endif  // DDPSOCK_TESTS_DIFFERENTIAL_PLAYER_H_
