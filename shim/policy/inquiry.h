// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What was asked of a socket for a verdict, for those who ask after it.
#ifndef DDPSOCK_SHIM_POLICY_INQUIRY_H_
#define DDPSOCK_SHIM_POLICY_INQUIRY_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/kernel_call.h"
#include "shim/policy/registry_table.h"

namespace ddpsock::shim {

// What the kernel calls the two ends of a connection, in IPv4 or IPv6.
struct Ends {
  sockaddr_in6 local{}, peer{};
};

// Nothing while it is not connected, or is no more.
inline std::optional<Ends> ends_of(int fd) {
  Ends ends;
  socklen_t local = sizeof ends.local, peer = sizeof ends.peer;
  if (base::kernel_call(SYS_getsockname, fd, &ends.local, &local) != 0 ||
      base::kernel_call(SYS_getpeername, fd, &ends.peer, &peer) != 0)
    return std::nullopt;
  return ends;
}

struct Inquiry {
  SocketKey key;               // of the socket
  std::optional<uid_t> owner;  // of that socket
  // The listener that the connection is made to by what the kernel said some time ago
  // (recent_listeners.h): it must be that one still. 0: the kernel said so just before.
  uint64_t listener = 0;
  std::optional<Ends> ends{};  // of a connection that is known to be established
  FoundRegistry registry{};    // of who listens, or of who has accepted
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_INQUIRY_H_
