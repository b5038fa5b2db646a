// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Other programs that ddprun asks, with a deadline.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_PROCESS_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_PROCESS_H_

#include <optional>
#include <string>
#include <vector>

namespace ddpsock::shim {

// What the program, looked for in PATH, says on standard output; what it says on the other is its
// own. Nothing: it is not there, does not end well, or takes longer than ten seconds (it is
// killed).
std::optional<std::string> output_of(const std::vector<std::string>& command);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_PROCESS_H_
