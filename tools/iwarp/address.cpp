// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/address.h"

#include <netdb.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

namespace ddpsock::iwarp {

Result<Address, Error> Address::resolve(const std::string& host, uint16_t port) {
  addrinfo wish{};
  wish.ai_socktype = SOCK_STREAM;
  // The wildcard of IPv6 serves IPv4 as well; a host without IPv6 is asked for below.
  wish.ai_flags = host.empty() ? AI_PASSIVE : AI_ADDRCONFIG;
  wish.ai_family = host.empty() ? AF_INET6 : AF_UNSPEC;
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
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  Address address;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  return address;
}

Address Address::of_peer(int fd) {
  Address address{.size = sizeof(sockaddr_storage)};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) return {};
  return address;
}

std::string Address::to_text() const {
  std::array<char, NI_MAXHOST> host;
  std::array<char, NI_MAXSERV> port;
  const int error = getnameinfo(get(), size, host.data(), host.size(), port.data(), port.size(),
                                NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return "an unknown address";
  // What an IPv6 socket calls a peer of IPv4.
  const std::string_view name(host.data());
  const bool is_mapped = name.starts_with("::ffff:") && name.find('.') != name.npos;
  return std::string(is_mapped ? name.substr(7) : name) + " port " + port.data();
}

}  // namespace ddpsock::iwarp
