// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_SHIM_CALLS_EXIT_H_
#define DDPSOCK_SHIM_CALLS_EXIT_H_

namespace ddpsock::shim {

// A FILE has written to `fd`. Where that was libc's flush at exit, behind all that exit runs of
// ours, it has woken the peer, which may say what must not lie unread when the kernel closes.
void prepare_again(int fd);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_EXIT_H_
