// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The options of level SOL_DDP, as include/ddpsock/ddpsock.h promises them. Return value and errno
// are those of getsockopt and setsockopt.
#ifndef DDPSOCK_SHIM_CALLS_DDP_OPTIONS_H_
#define DDPSOCK_SHIM_CALLS_DDP_OPTIONS_H_

#include <sys/socket.h>

namespace ddpsock::shim {

int get_ddp_option(int fd, int name, void* value, socklen_t* length);
int set_ddp_option(int fd, int name, const void* value, socklen_t length);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_DDP_OPTIONS_H_
