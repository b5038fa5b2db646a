// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/listener.h"

#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <cerrno>

#include "base/socket_option.h"
#include "base/sys.h"
#include "connect/wait.h"

namespace ddpsock::iwarp {
namespace {

constexpr int kBacklog = 128;

uint16_t port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// FIN, then reads and drops what the peer still sends up to its FIN, then closes: a close with
// unread bytes sends a RST, which can overtake what was sent last.
void close_gently(base::UniqueFd fd, Time deadline) {
  base::sys.shutdown(fd.get(), SHUT_WR);
  std::array<char, 4096> dropped;
  while (connecting::wait_for(fd.get(), POLLIN, deadline) && base::now() < deadline) {
    const ssize_t n = base::sys.recv(fd.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

}  // namespace

Result<Listener, Error> Listener::open(const Address& at) {
  base::UniqueFd fd(base::sys.socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_valid()) return fail_with("making a socket", errno);
  base::set_socket_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (at.family() == AF_INET6) base::set_socket_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd.get(), at.get(), at.size) != 0) return fail_with("binding", errno);
  if (listen(fd.get(), kBacklog) != 0) return fail_with("listening", errno);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return fail_with("asking for the port", errno);
  }
  return Listener(std::move(fd), port_of(bound));
}

Result<base::UniqueFd, Error> Listener::take(Time deadline) {
  for (;;) {
    base::UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_valid()) {
      // What can end a connection before it is accepted is not the listener's failure.
      const bool is_passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ||
                              errno == EPROTO || errno == ENETDOWN || errno == EHOSTUNREACH;
      if (!is_passing) return fail_with("accepting", errno);
      if (!connecting::wait_for(fd_.get(), POLLIN, deadline))
        return fail_with("accepting", ETIMEDOUT);
      continue;
    }
    return fd;
  }
}

Result<Incoming, Error> Listener::next(const mpa::ResponderConfig& config, Time deadline) {
  auto fd = take(deadline);
  if (!fd) return fail(fd.error());
  return Incoming::hear(std::move(*fd), config);
}

Result<Incoming, Error> Incoming::hear(base::UniqueFd fd, const mpa::ResponderConfig& config) {
  connecting::Handshake handshake(fd.get(), mpa::Responder(config, base::now()));
  if (handshake.run() != mpa::StartupState::kDeciding) return fail_with(handshake.failure());
  return Incoming(std::move(fd), handshake);
}

Status<Error> Incoming::accept(Endpoint& endpoint, const mpa::Acceptance& acceptance) {
  const auto accepted = handshake_.responder()->accept(acceptance, base::now());
  if (!accepted) return fail_with(mpa::StartupFailure::of(accepted.error()));
  handshake_.run();
  return endpoint.start(std::move(fd_), handshake_);
}

Status<Error> Incoming::reject(const mpa::PrivateData& private_data) {
  const auto rejected = handshake_.responder()->reject(private_data, base::now());
  if (!rejected) return fail_with(mpa::StartupFailure::of(rejected.error()));
  handshake_.run();
  close_gently(std::move(fd_), base::now() + Duration::from_ms(2'000));
  if (handshake_.failure().error == mpa::StartupError::kRejected) return {};
  return fail_with(handshake_.failure());
}

}  // namespace ddpsock::iwarp
