// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// DDPSOCK_PCAP and DDPSOCK_TRACE, as ddprun sets them.
#include <cstdlib>

#include "base/keep_errno.h"
#include "engine/wrap/recorder.h"
#include "shim/policy/confinement.h"

namespace ddpsock::shim {
namespace {

// Before the first connection, and before the program replaces its environment or gives up rights.
[[gnu::constructor]] void record_from_the_start() {
  const char* capture = secure_getenv("DDPSOCK_PCAP");
  const char* trace = secure_getenv("DDPSOCK_TRACE");
  if (capture == nullptr && trace == nullptr) return;
  const base::KeepErrno keep;
  // Nobody knows what it allows. By the bare look that it is known to (policy/confinement.h).
  if (is_under_filter()) return;
  engine::wrap::start_recording(capture, trace);
}

}  // namespace
}  // namespace ddpsock::shim
