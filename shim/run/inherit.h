// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What this program was given when it was executed.
#ifndef DDPSOCK_SHIM_RUN_INHERIT_H_
#define DDPSOCK_SHIM_RUN_INHERIT_H_

namespace ddpsock::shim {

// Does a program that is about to be executed find the connection behind `fd`, one of 0 to 2, there
// by accident? So it is with those that this program was given itself, where it goes on beside what
// it starts (`is_beside`, as in its forked children) and answers on them afterwards; and with what
// strayed to it in the same way. Async-signal-safe.
bool is_stray(int fd, bool is_beside);
// Was it this very process that was executed, and not one that it was forked from?
bool is_executed_itself();

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_INHERIT_H_
