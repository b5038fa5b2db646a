// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The many names of one act: each way in which a program sends, receives or polls, behind one
// shape.
#ifndef DDPSOCK_TESTS_SEQUENCES_CALLS_H_
#define DDPSOCK_TESTS_SEQUENCES_CALLS_H_

#include <sys/types.h>

#include <cstddef>
#include <span>

namespace ddpsock::sequences {

// Those that gather and scatter use three parts, one of them empty. Flags are given to those that
// take flags. The result is the call's; bytes are counted where it counts messages.
struct Moved {
  ssize_t result;
  size_t bytes;
  int flags;  // that recvmsg and recvmmsg gave back
};
Moved send_by(int how, int fd, const char* bytes, size_t size, int flags);
Moved receive_by(int how, int fd, char* bytes, size_t size, int flags);
bool takes_flags(int how);  // the same for both

// Events as poll's; `got` is set where the call did not fail.
struct Polled {
  int fd;
  short wanted, got;
};
int poll_by(int how, std::span<Polled> fds, int timeout_ms);

}  // namespace ddpsock::sequences

#endif  // DDPSOCK_TESTS_SEQUENCES_CALLS_H_
