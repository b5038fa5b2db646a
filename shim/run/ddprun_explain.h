// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What became of connections: of a program that ddprun runs for the purpose, and of one that runs.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_EXPLAIN_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_EXPLAIN_H_

#include <functional>
#include <string>

namespace ddpsock::shim {

// Runs `execute`, which does not return but may throw Failure, in a child, waits for it, and then
// says on standard error what each connection of `program` and of its children was, and why.
// Returns the child's status as a shell has it. Throws Failure.
int explain_after(const std::string& program, const std::function<void()>& execute);

// The same of the process `pid` as it is now, by its statistics (ddpstat).
int explain_process(int pid);

// A line of DDPSOCK_LOG=info.
struct LoggedEvent {
  int pid = 0, fd = -1;
  std::string event, peer, mode, engine, reason;
};
bool parse_event(const std::string& line, LoggedEvent& event);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_EXPLAIN_H_
