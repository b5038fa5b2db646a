// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is known on this host of who listens at an address, and of what the system allows.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_LISTENER_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_LISTENER_H_

#include <sys/types.h>

#include <string>

#include "shim/run/ddprun_probe.h"

namespace ddpsock::shim {

struct ListenerView {
  enum class State { kRegistered, kUnregistered, kNone, kUnknown };
  State state = State::kUnknown;
  uid_t owner = 0;
  std::string by;      // which program
  std::string reason;  // not registered, or unknown: why, and what to do
  std::string engine;  // that it was told to use; empty if that cannot be seen
};
ListenerView look_at_listener(const Endpoint& server);

std::string name_of_user(uid_t user);

// A few system calls that containers forbid, made in a child.
struct CallsTried {
  bool has_filter = false;  // a seccomp filter is in force
  std::string fatal;        // the call that ended the child; empty: none did
  std::string refused;
};
CallsTried try_calls();

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_LISTENER_H_
