// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/sys.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace ddpsock::base {

constinit SysCalls sys = {
    .recv = ::recv,
    .recvmsg = ::recvmsg,
    .send = ::send,
    .sendmsg = ::sendmsg,
    .poll = ::poll,
    .shutdown = ::shutdown,
    .socket = ::socket,
    .connect = ::connect,
    .getsockopt = ::getsockopt,
    .setsockopt = ::setsockopt,
    .fcntl = ::fcntl,
    .ioctl = ::ioctl,
    .socketpair = ::socketpair,
    .epoll_create1 = ::epoll_create1,
    .epoll_ctl = ::epoll_ctl,
    .epoll_wait = ::epoll_wait,
};

}  // namespace ddpsock::base
