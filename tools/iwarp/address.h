// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_IWARP_ADDRESS_H_
#define DDPSOCK_TOOLS_IWARP_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "tools/iwarp/error.h"

namespace ddpsock::iwarp {

// Where to connect or listen: one IPv4 or IPv6 address with its port.
struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  // `host` is a name or a number; empty: any address, to listen on (IPv6 and IPv4 where the host
  // has both). The first address found is taken. Error: the resolver's own words.
  static Result<Address, Error> resolve(const std::string& host, uint16_t port);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  // Of the other end of a connected socket; unknown (size 0) if it has gone.
  static Address of_peer(int fd);

  // "10.0.0.1 port 7174"
  std::string to_text() const;
  int family() const { return storage.ss_family; }
};

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_ADDRESS_H_
