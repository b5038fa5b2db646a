// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/tcp_address.h"

#include <arpa/inet.h>

#include <cstdio>
#include <cstring>

namespace ddpsock::base {

TcpAddress tcp_address_of(const sockaddr_in6& of_either) {
  TcpAddress address{};
  if (of_either.sin6_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &of_either, sizeof in);
    address.family = 4;
    address.port = ntohs(in.sin_port);
    std::memcpy(address.host.data(), &in.sin_addr, sizeof in.sin_addr);
  } else if (of_either.sin6_family == AF_INET6) {
    address.family = 6;
    address.port = ntohs(of_either.sin6_port);
    std::memcpy(address.host.data(), &of_either.sin6_addr, sizeof of_either.sin6_addr);
  }
  return address;
}

TcpAddressText::TcpAddressText(const TcpAddress& address) {
  char host[INET6_ADDRSTRLEN] = "?";
  if (address.family != 0)
    inet_ntop(address.family == 6 ? AF_INET6 : AF_INET, address.host.data(), host, sizeof host);
  std::snprintf(text.data(), text.size(), address.family == 6 ? "[%s]:%u" : "%s:%u", host,
                address.port);
}

}  // namespace ddpsock::base
