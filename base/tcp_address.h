// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One end of a TCP connection, as it is recorded and shown.
#ifndef DDPSOCK_BASE_TCP_ADDRESS_H_
#define DDPSOCK_BASE_TCP_ADDRESS_H_

#include <netinet/in.h>

#include <array>
#include <cstdint>

namespace ddpsock::base {

struct TcpAddress {
  uint8_t family;  // 4, 6, or 0: not known
  uint16_t port;
  std::array<uint8_t, 16> host;  // in network order; the first four octets of IPv4
};

// `of_either`: a sockaddr_in6, or a sockaddr_in in its place.
TcpAddress tcp_address_of(const sockaddr_in6& of_either);

// "127.0.0.1:80", "[::1]:80", "?:0".
struct TcpAddressText {
  explicit TcpAddressText(const TcpAddress& address);
  std::array<char, INET6_ADDRSTRLEN + 10> text;
};

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_TCP_ADDRESS_H_
