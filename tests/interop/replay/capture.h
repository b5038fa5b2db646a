// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The one TCP connection of a capture file, both directions put together again: pcap, Ethernet,
// IPv4, TCP. Retransmissions are dropped and segments put in order.
#ifndef DDPSOCK_TESTS_INTEROP_REPLAY_CAPTURE_H_
#define DDPSOCK_TESTS_INTEROP_REPLAY_CAPTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace ddpsock::interop {

using Octets = std::vector<uint8_t>;

enum class Side : uint8_t { kClient, kServer };

// New octets of one direction, as they became complete at the place of the capture.
struct Segment {
  Side from = Side::kClient;
  Octets octets;
  bool is_fin = false;
};

// In the order of the capture. The error says what is wrong with the file: not pcap, cut short, no
// connection to `server_port` or more than one, a gap.
Result<std::vector<Segment>, std::string> read_connection(const std::string& path,
                                                          uint16_t server_port);

Octets stream_of(const std::vector<Segment>& segments, Side from);

}  // namespace ddpsock::interop

#endif  // DDPSOCK_TESTS_INTEROP_REPLAY_CAPTURE_H_
