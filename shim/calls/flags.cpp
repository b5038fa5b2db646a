// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/calls/flags.h"

#include <errno.h>
#include <sys/socket.h>

#include "shim/libc_edge.h"

namespace ddpsock::shim {
namespace {

constexpr int kReceiveFlags = MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_TRUNC;
constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE;

// A program that turned it on waits for completions on the error queue, which a copying send never
// makes. ENOBUFS is what the kernel says when it cannot pin memory: such programs then copy.
bool wants_zerocopy_completions(int fd) {
  return int_option(fd, SOL_SOCKET, SO_ZEROCOPY) != 0;
}

}  // namespace

Flags receive_flags(int flags) {
  // TCP's answer when no urgent byte has come; the stream carries none.
  if ((flags & MSG_OOB) != 0) return {.error = EINVAL};
  return {.for_engine = flags & kReceiveFlags};
}

engine::Io refuse_receive(engine::Stream& stream, int fd, Flags wanted) {
  stream.is_recv_ready(fd);
  return engine::Io::fail(wanted.error);
}

Flags send_flags(int fd, int flags) {
  if ((flags & MSG_OOB) != 0) return {.error = EOPNOTSUPP};
  if ((flags & MSG_FASTOPEN) != 0) return {.error = EISCONN};
  if ((flags & MSG_ZEROCOPY) != 0 && wants_zerocopy_completions(fd)) return {.error = ENOBUFS};
  return {.for_engine = flags & kSendFlags};
}

}  // namespace ddpsock::shim
