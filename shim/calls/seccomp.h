// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_SHIM_CALLS_SECCOMP_H_
#define DDPSOCK_SHIM_CALLS_SECCOMP_H_

struct sock_fprog;

namespace ddpsock::shim {

// Does the filter forbid a system call that streams need? It is run over each, with the
// arguments that they have.
bool would_hurt(const sock_fprog& program);

// The program is about to restrict itself: `mode` is SECCOMP_MODE_STRICT or _FILTER, `program` the
// filter (struct sock_fprog).
void before_seccomp(unsigned long mode, const void* program);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_SECCOMP_H_
