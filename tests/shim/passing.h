// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Descriptors that are passed through a UNIX socket (SCM_RIGHTS).
#ifndef DDPSOCK_TESTS_SHIM_PASSING_H_
#define DDPSOCK_TESTS_SHIM_PASSING_H_

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tcp.h"

namespace ddpsock::shim_tests {

struct UnixPair {
  UnixPair() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    near = Fd(pair[0]);
    far = Fd(pair[1]);
  }
  Fd near, far;
};

inline ssize_t pass(int through, const std::vector<int>& fds) {
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  return sendmsg(through, &m, 0);
}

// What comes by one message.
inline std::vector<Fd> receive_passed(int through) {
  char byte;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  std::vector<Fd> fds;
  EXPECT_EQ(recvmsg(through, &m, 0), 1) << strerror(errno);
  const cmsghdr* c = CMSG_FIRSTHDR(&m);
  if (c == nullptr) return fds;
  for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
    int fd;
    memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
    fds.emplace_back(fd);
  }
  return fds;
}

}  // namespace ddpsock::shim_tests

#endif  // DDPSOCK_TESTS_SHIM_PASSING_H_
