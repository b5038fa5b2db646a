// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Filters of system calls that were there before the program (a container's, a service manager's,
// of a launcher that confines itself and executes). Unlike those that the program sets itself
// (seccomp.h) they cannot be read.
#ifndef DDPSOCK_SHIM_POLICY_CONFINEMENT_H_
#define DDPSOCK_SHIM_POLICY_CONFINEMENT_H_

namespace ddpsock::shim {

// Is there any? By calls that every program has made when it was loaded.
bool is_under_filter();

// May this process make the system calls that streams need and live? Tried by a child, in about the
// time of a fork.
bool survives_our_calls();

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_CONFINEMENT_H_
