// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_IWARP_TCP_H_
#define DDPSOCK_TOOLS_IWARP_TCP_H_

#include <netinet/in.h>

#include <optional>

#include "base/clock.h"
#include "base/fd.h"
#include "tools/iwarp/error.h"

namespace ddpsock::iwarp {

// Where to connect or listen: one IPv4 or IPv6 address with its port.
struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  // `host` is a name or a number; empty: any address of IPv6 and IPv4, to listen on. The first
  // address found is taken. Error: the resolver's own words.
  static Result<Address, Error> resolve(const std::string& host, uint16_t port);
  // What getpeername() or getsockname() says of a socket; unknown (size 0) if it has gone.
  static Address asked(int (*ask)(int, sockaddr*, socklen_t*), int fd);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // Both families have it in the same place.
  uint16_t port() const { return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port); }
  // "10.0.0.1 port 7174"
  std::string to_text() const;
};

// A socket that is connecting, from `source` (port 0: any).
Result<base::UniqueFd, Error> call(const Address& to, const std::optional<Address>& source);

class Listener {
 public:
  static Result<Listener, Error> open(const Address& at);
  // The port it listens on, also when 0 was asked for.
  uint16_t port() const { return Address::asked(getsockname, fd_.get()).port(); }
  // The next TCP connection, for Endpoint::hear(), perhaps in a thread of its own. After an error
  // the listener stays usable.
  Result<base::UniqueFd, Error> take(Time deadline);

 private:
  explicit Listener(base::UniqueFd fd) : fd_(std::move(fd)) {}
  base::UniqueFd fd_;
};

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_TCP_H_
