// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One end of a TCP connection, as it is recorded and shown.
#ifndef DDPSOCK_ENGINE_TCP_ADDRESS_H_
#define DDPSOCK_ENGINE_TCP_ADDRESS_H_

#include <array>
#include <cstdint>

namespace ddpsock::engine {

struct TcpAddress {
  uint8_t family;  // 4, 6, or 0: not known
  uint16_t port;
  std::array<uint8_t, 16> host;  // in network order; the first four octets of IPv4
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_TCP_ADDRESS_H_
