// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The descriptors that a message through a UNIX socket carries.
#ifndef DDPSOCK_SHIM_CALLS_PASSED_FDS_H_
#define DDPSOCK_SHIM_CALLS_PASSED_FDS_H_

#include <sys/socket.h>

#include <cstring>

namespace ddpsock::shim {

// Calls visit(fd) for each.
template <typename Visit>
void visit_passed_fds(const msghdr& message, Visit visit) {
  auto* const m = const_cast<msghdr*>(&message);
  for (cmsghdr* c = CMSG_FIRSTHDR(m); c != nullptr; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
      continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
      visit(fd);
    }
  }
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_PASSED_FDS_H_
