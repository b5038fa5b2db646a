// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The libc calls that engines make on sockets, through one table. In an ordinary program the table
// holds libc's own functions; inside the preloaded library the shim replaces the entries by the
// next definitions in link order (its own names would otherwise be found first). Blocking entries
// stay cancellation points because they are libc's functions and not raw system calls.
#ifndef DDPSOCK_BASE_SYS_H_
#define DDPSOCK_BASE_SYS_H_

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <concepts>

#include "base/effort.h"

namespace ddpsock::base {

// A function that counts its calls as effort of the calling thread.
template <typename F>
class Counted {
 public:
  template <std::convertible_to<F> G>
  constexpr Counted(G function) : function_(function) {}
  operator F() const { return function_; }

  template <typename... A>
  auto operator()(A... arguments) const {
    ++effort.system_calls;
    return function_(arguments...);
  }

 private:
  F function_;
};

struct SysCalls {
  Counted<ssize_t (*)(int, void*, size_t, int)> recv;
  Counted<ssize_t (*)(int, msghdr*, int)> recvmsg;
  Counted<ssize_t (*)(int, const void*, size_t, int)> send;
  Counted<ssize_t (*)(int, const msghdr*, int)> sendmsg;
  Counted<int (*)(pollfd*, nfds_t, int)> poll;
  Counted<int (*)(int, int)> shutdown;
  Counted<int (*)(int, int, int)> socket;
  Counted<int (*)(int, const sockaddr*, socklen_t)> connect;
  Counted<int (*)(int, int, int, void*, socklen_t*)> getsockopt;
  Counted<int (*)(int, int, int, const void*, socklen_t)> setsockopt;
  Counted<int (*)(int, int, ...)> fcntl;
  Counted<int (*)(int, unsigned long, ...)> ioctl;
  Counted<int (*)(int, int, int, int*)> socketpair;
  Counted<int (*)(int)> epoll_create1;
  Counted<int (*)(int, int, int, epoll_event*)> epoll_ctl;
  Counted<int (*)(int, epoll_event*, int, int)> epoll_wait;
};

extern constinit SysCalls sys;

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_SYS_H_
