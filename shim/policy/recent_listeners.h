// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where this process has connected to lately, and who listened there. Only a guess that saves a
// question before connect(2): who goes by it asks afterwards whether it was right.
#ifndef DDPSOCK_SHIM_POLICY_RECENT_LISTENERS_H_
#define DDPSOCK_SHIM_POLICY_RECENT_LISTENERS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "shim/policy/address.h"

namespace ddpsock::shim {

struct RecentListener {
  uint64_t netns = 0, cookie = 0;
  uid_t uid = 0;
};

// Lock-free and async-signal-safe. What another thread is just noting is not found.
void note_listener_met(const Address& server, const RecentListener& listener);
std::optional<RecentListener> listener_met_lately(const Address& server);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_RECENT_LISTENERS_H_
