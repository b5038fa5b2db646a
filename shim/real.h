// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The functions that a program would have called without this library: the next definitions in link
// order, so that other preloaded libraries keep their place in the chain.
#ifndef DDPSOCK_SHIM_REAL_H_
#define DDPSOCK_SHIM_REAL_H_

#include "shim/real_calls.h"  // generated

namespace ddpsock::shim {

// Never holds a null pointer. Until this library's constructor has run (another library's
// constructor, or an allocator that dlsym itself calls, may come first) every entry makes the
// system call directly; an entry that libc lacks stays so. Written once, before the program has a
// second thread.
[[gnu::visibility("hidden")]] extern constinit RealCalls real;

// The exported name of each member of RealCalls, in order.
extern const char* const kRealNames[kRealCalls];

// Fills `real` and base::sys. Runs as a constructor; idempotent.
void resolve_real_calls();

// Does this library only pass through? Another copy in front of it, of another version or in
// another folder, serves the program; or libc is not glibc. Constant after start.
bool stands_aside();

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_REAL_H_
