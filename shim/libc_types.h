// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The types in which calls.list speaks. sendfile, splice and the vector calls are declared with one
// off_t: libc's 32-bit and 64-bit names are one function only where off_t has 64 bits anyway.
#ifndef DDPSOCK_SHIM_LIBC_TYPES_H_
#define DDPSOCK_SHIM_LIBC_TYPES_H_

#include <aio.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <wchar.h>

struct termios;
struct winsize;

static_assert(sizeof(off_t) == 8 && sizeof(long) == 8, "64-bit systems only");

#endif  // DDPSOCK_SHIM_LIBC_TYPES_H_
