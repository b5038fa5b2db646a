// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How libc's calls say that they fail, and what the kernel says of a socket.
#ifndef DDPSOCK_SHIM_LIBC_EDGE_H_
#define DDPSOCK_SHIM_LIBC_EDGE_H_

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

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

// The answer of a getsockopt() that the kernel is not asked for.
inline int copy_out(int answer, void* value, socklen_t* length) {
  const auto size = std::min<socklen_t>(*length, sizeof(answer));
  memcpy(value, &answer, size);
  *length = size;
  return 0;
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_LIBC_EDGE_H_
