// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An option of a socket as a value: setsockopt(2) and getsockopt(2) as libc has them (sys.h), which
// touch errno where they fail and nowhere else.
#ifndef DDPSOCK_BASE_SOCKET_OPTION_H_
#define DDPSOCK_BASE_SOCKET_OPTION_H_

#include <sys/socket.h>

#include <optional>

#include "base/sys.h"

namespace ddpsock::base {

// Nothing: the kernel does not tell. What it tells less of than T holds is zero at its end.
template <typename T = int>
std::optional<T> socket_option(int fd, int level, int name) {
  T value{};
  socklen_t size = sizeof value;
  if (sys.getsockopt(fd, level, name, &value, &size) != 0) return std::nullopt;
  return value;
}

// False: the kernel refuses.
template <typename T = int>
bool set_socket_option(int fd, int level, int name, const T& value) {
  return sys.setsockopt(fd, level, name, &value, sizeof value) == 0;
}

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_SOCKET_OPTION_H_
