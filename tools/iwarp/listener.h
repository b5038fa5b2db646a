// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The passive side: a listening socket, and connections whose MPA Request has been read.
#ifndef DDPSOCK_TOOLS_IWARP_LISTENER_H_
#define DDPSOCK_TOOLS_IWARP_LISTENER_H_

#include "base/fd.h"
#include "tools/iwarp/address.h"
#include "tools/iwarp/endpoint.h"

namespace ddpsock::iwarp {

// A peer that wants to connect. Destroying it closes the connection without an answer.
class Incoming {
 public:
  // Reads the Request of a connection that Listener::take() gave. One that says something else, or
  // nothing for `config.timeouts`, is closed and an error.
  static Result<Incoming, Error> hear(base::UniqueFd fd, const mpa::ResponderConfig& config);
  // The peer's Request; borrows from this.
  mpa::StartupFrame request() { return handshake_.responder()->request(); }
  // Answers yes and starts the endpoint's queue pair. Post receives before.
  Status<Error> accept(Endpoint& endpoint, const mpa::Acceptance& acceptance);
  // Answers no. The peer's ULP gets `private_data`.
  Status<Error> reject(const mpa::PrivateData& private_data);

 private:
  Incoming(base::UniqueFd fd, const connecting::Handshake& handshake)
      : fd_(std::move(fd)), handshake_(handshake) {}

  base::UniqueFd fd_;
  connecting::Handshake handshake_;
};

class Listener {
 public:
  static Result<Listener, Error> open(const Address& at);
  // The port it listens on, also when 0 was asked for.
  uint16_t port() const { return port_; }

  // The next TCP connection, for Incoming::hear(), perhaps in a thread of its own.
  Result<base::UniqueFd, Error> take(Time deadline);
  // Both in one: the next peer that sends a Request. After an error the listener stays usable.
  // Peers wait in the kernel's queue meanwhile: one connection is looked at a time.
  Result<Incoming, Error> next(const mpa::ResponderConfig& config, Time deadline);

 private:
  Listener(base::UniqueFd fd, uint16_t port) : fd_(std::move(fd)), port_(port) {}
  base::UniqueFd fd_;
  uint16_t port_;
};

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_LISTENER_H_
