// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The libc calls that engines make on sockets, through one table. In an ordinary program the table
// holds libc's own functions; inside the preloaded library the shim replaces the entries by the
// next definitions in link order (its own names would otherwise be found first). Blocking entries
// stay cancellation points because they are libc's functions and not raw system calls.
#ifndef DDPSOCK_BASE_SYS_H_
#define DDPSOCK_BASE_SYS_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

namespace ddpsock::base {

struct SysCalls {
  ssize_t (*recv)(int, void*, size_t, int);
  ssize_t (*recvmsg)(int, msghdr*, int);
  ssize_t (*send)(int, const void*, size_t, int);
  ssize_t (*sendmsg)(int, const msghdr*, int);
  int (*poll)(pollfd*, nfds_t, int);
  int (*close)(int);
  int (*shutdown)(int, int);
  int (*socket)(int, int, int);
  int (*connect)(int, const sockaddr*, socklen_t);
  int (*getsockopt)(int, int, int, void*, socklen_t*);
  int (*setsockopt)(int, int, int, const void*, socklen_t);
  int (*fcntl)(int, int, ...);
  int (*ioctl)(int, unsigned long, ...);
};

extern constinit SysCalls sys;

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_SYS_H_
