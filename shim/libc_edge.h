// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How libc's calls say that they fail, and what the kernel says of a socket.
#ifndef DDPSOCK_SHIM_LIBC_EDGE_H_
#define DDPSOCK_SHIM_LIBC_EDGE_H_

#include <errno.h>
#include <sys/socket.h>

#include "shim/real.h"

namespace ddpsock::shim {

inline int fail(int error) {
  errno = error;
  return -1;
}

// An option of the kernel's, `otherwise` where it cannot be asked; errno says why.
inline int int_option(int fd, int level, int name, int otherwise = 0) {
  int value = otherwise;
  socklen_t length = sizeof(value);
  return real.getsockopt(fd, level, name, &value, &length) == 0 ? value : otherwise;
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_LIBC_EDGE_H_
