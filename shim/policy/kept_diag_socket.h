// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The netlink socket that inet_diag.h asks through, kept for the next verdict: to make and close
// one costs more than what is asked. One a process, out of the way of programs, close-on-exec, in
// one thread's hands at a time; who finds it taken makes another. A program that closes its number,
// and has it for something else by then, loses nothing by it: it is known by its inode before it is
// used. Where that has happened none is kept any more: descriptors are closed behind the library's
// back, or threads have tables of their own, and each would find the other's gone.
#ifndef DDPSOCK_SHIM_POLICY_KEPT_DIAG_SOCKET_H_
#define DDPSOCK_SHIM_POLICY_KEPT_DIAG_SOCKET_H_

#include <cstdint>

namespace ddpsock::shim {

// The kept socket, if it asks this network namespace; the caller's alone until it is given back,
// and not read by a forked child. -1: none.
int take_diag_socket(uint64_t netns);

// Gives back what take_diag_socket() returned.
void return_diag_socket(int fd);
// The same for one that is of no use any more; it is closed.
void drop_diag_socket(int fd);

// This process and its descendants keep none from now on; one that is being asked is closed when it
// is given back.
void forbid_diag_socket();

// Keeps a new one, or closes it: another is kept, or descriptors are few.
void keep_diag_socket(int fd, uint64_t netns);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_KEPT_DIAG_SOCKET_H_
