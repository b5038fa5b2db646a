// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/bell.h"

#include <sys/socket.h>

#include "base/cancellation.h"
#include "base/socket_option.h"
#include "base/sys.h"
#include "message/poller.h"

namespace ddpsock::message {

uint64_t socket_cookie(int fd) {
  return base::socket_option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE).value_or(0);
}

bool Bell::open() {
  int ends[2];
  if (base::sys.socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  base::UniqueFd inner = move_high(base::UniqueFd(ends[0]));
  base::UniqueFd outer = move_high(base::UniqueFd(ends[1]));
  cookie_.store(socket_cookie(outer.get()));
  inner_.store(inner.release());
  outer_.store(outer.release());
  return true;
}

bool Bell::ring() {
  const int fd = outer_.load();
  if (socket_cookie(fd) != cookie_.load()) return false;
  const base::Uncancelled whole;
  // When it takes no more it has been rung often enough.
  base::sys.send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  return true;
}

void Bell::drain() {
  char rings[64];
  base::sys.recv(fd(), rings, sizeof rings, MSG_DONTWAIT);
}

}  // namespace ddpsock::message
