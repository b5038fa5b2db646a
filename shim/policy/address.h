// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A TCP address as rules, registry and inet_diag compare it: IPv4 is held in its v4-mapped IPv6
// form (RFC 4291 section 2.5.5.2), so that 10.0.0.1 and ::ffff:10.0.0.1 are one address.
#ifndef DDPSOCK_SHIM_POLICY_ADDRESS_H_
#define DDPSOCK_SHIM_POLICY_ADDRESS_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ddpsock::shim {

struct Address {
  std::array<uint8_t, 16> bytes{};  // network order
  uint16_t port = 0;                // host order

  bool operator==(const Address&) const = default;
  bool is_v4() const;
  bool is_wildcard() const;  // 0.0.0.0 or ::
  bool is_loopback() const;  // 127.0.0.0/8 or ::1
};

// Empty for other families and for lengths too short for the family. Scope identifiers are ignored.
std::optional<Address> read_address(const sockaddr* from, socklen_t length);

// What the kernel has said of an end of a connection.
inline std::optional<Address> address_of(const sockaddr_in6& end) {
  return read_address(reinterpret_cast<const sockaddr*>(&end), sizeof end);
}

// The fd's own and its peer's address; empty for sockets that are not TCP over IP or not connected.
std::optional<Address> local_address(int fd);
std::optional<Address> peer_address(int fd);

// "10.0.0.1" or "fe80::1", no port, no brackets. No allocation.
std::optional<Address> parse_address(std::string_view text);

// An address prefix. An IPv6 prefix never matches an IPv4 address: `::/0` is all of IPv6 alone.
struct Prefix {
  Address base;
  uint8_t bits = 0;  // 0..32 for IPv4, 0..128 for IPv6

  bool has(const Address& a) const;
};

// An address, optionally followed by "/bits". No allocation.
std::optional<Prefix> parse_prefix(std::string_view text);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_ADDRESS_H_
