// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Will a program that is about to be executed load this library? Only the log asks.
#ifndef DDPSOCK_SHIM_EXEC_TARGET_H_
#define DDPSOCK_SHIM_EXEC_TARGET_H_

namespace ddpsock::shim {

// Static text: why the dynamic linker will not preload anything into the program at `path`. Null if
// it will, or if that cannot be told (a script, an unreadable file, a name without a slash).
// Async-signal-safe; errno may change.
const char* why_not_preloaded(int directory, const char* path);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_EXEC_TARGET_H_
