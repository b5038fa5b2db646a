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
    .close = ::close,
    .shutdown = ::shutdown,
    .socket = ::socket,
    .connect = ::connect,
    .getsockopt = ::getsockopt,
    .setsockopt = ::setsockopt,
    .fcntl = ::fcntl,
    .ioctl = ::ioctl,
};

}  // namespace ddpsock::base
