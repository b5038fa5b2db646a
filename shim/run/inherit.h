// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What this program was given when it was executed.
#ifndef DDPSOCK_SHIM_RUN_INHERIT_H_
#define DDPSOCK_SHIM_RUN_INHERIT_H_

namespace ddpsock::shim {

// Was it this very process that was executed, with streams, and not one that it was forked from?
// Async-signal-safe.
bool is_executed_itself();

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_INHERIT_H_
