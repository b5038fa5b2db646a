// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/tcp.h"

#include <netdb.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "base/socket_option.h"
#include "connect/wait.h"

namespace ddpsock::iwarp {
namespace {

constexpr int kBacklog = 128;

base::UniqueFd make_socket(const Address& of) {
  return base::UniqueFd(
      base::sys.socket(of.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

Result<Address, Error> Address::resolve(const std::string& host, uint16_t port) {
  addrinfo wish{};
  wish.ai_socktype = SOCK_STREAM;
  wish.ai_flags = host.empty() ? AI_PASSIVE : AI_ADDRCONFIG;
  if (host.empty()) wish.ai_family = AF_INET6;  // whose wildcard serves IPv4 as well
  const char* const node = host.empty() ? nullptr : host.c_str();
  const std::string service = std::to_string(port);
  addrinfo* found = nullptr;
  int error = getaddrinfo(node, service.c_str(), &wish, &found);
  if (error != 0 && !host.empty()) {
    wish.ai_flags = 0;  // AI_ADDRCONFIG hides loopback on a host that has nothing else
    error = getaddrinfo(node, service.c_str(), &wish, &found);
  }
  if (error != 0) {
    return fail_with(host + ": " +
                     (error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error)));
  }
  Address address{.size = found->ai_addrlen};
  std::memcpy(&address.storage, found->ai_addr, address.size);
  freeaddrinfo(found);
  return address;
}

Address Address::asked(int (*ask)(int, sockaddr*, socklen_t*), int fd) {
  Address address{.size = sizeof(sockaddr_storage)};
  if (ask(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) return {};
  return address;
}

std::string Address::to_text() const {
  std::array<char, NI_MAXHOST> host;
  std::array<char, NI_MAXSERV> service;
  const int error = getnameinfo(get(), size, host.data(), host.size(), service.data(),
                                service.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return "an unknown address";
  // What an IPv6 socket calls a peer of IPv4.
  const std::string_view name(host.data());
  const bool is_mapped = name.starts_with("::ffff:") && name.find('.') != name.npos;
  return std::string(is_mapped ? name.substr(7) : name) + " port " + service.data();
}

Result<base::UniqueFd, Error> call(const Address& to, const std::optional<Address>& source) {
  base::UniqueFd fd = make_socket(to);
  if (!fd.is_valid()) return fail_with("making a socket", errno);
  if (source && bind(fd.get(), source->get(), source->size) != 0)
    return fail_with("binding the source address", errno);
  const bool is_calling =
      base::sys.connect(fd.get(), to.get(), to.size) == 0 || errno == EINPROGRESS || errno == EINTR;
  if (!is_calling) return fail_with("connecting", errno);
  return fd;
}

Result<Listener, Error> Listener::open(const Address& at) {
  base::UniqueFd fd = make_socket(at);
  if (!fd.is_valid()) return fail_with("making a socket", errno);
  base::set_socket_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (at.family() == AF_INET6) base::set_socket_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd.get(), at.get(), at.size) != 0) return fail_with("binding", errno);
  if (listen(fd.get(), kBacklog) != 0) return fail_with("listening", errno);
  return Listener(std::move(fd));
}

Result<base::UniqueFd, Error> Listener::take(Time deadline) {
  while (connecting::wait_for(fd_.get(), POLLIN, deadline)) {
    base::UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.is_valid()) return fd;
    // What can end a connection before it is accepted is not the listener's failure.
    const bool is_passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ||
                            errno == EPROTO || errno == ENETDOWN || errno == EHOSTUNREACH;
    if (!is_passing) return fail_with("accepting", errno);
  }
  return fail_with("accepting", ETIMEDOUT);
}

}  // namespace ddpsock::iwarp
