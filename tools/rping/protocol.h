// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What rping of rdma-core says on the wire. The client speaks first, and all its messages advertise
// memory; the server's only say "go on". For each ping:
//
//   client                                server
//   Send: advert of the source    ->
//                                 <-      Read Request
//   Read Response: the data       ->
//                                 <-      Send: go on
//   Send: advert of the sink      ->
//                                 <-      Write: the same data
//                                 <-      Send: go on
//
// Then the client closes. There is no private data and no version: what tells rping from something
// else is that every message has 16 octets.
#ifndef DDPSOCK_TOOLS_RPING_PROTOCOL_H_
#define DDPSOCK_TOOLS_RPING_PROTOCOL_H_

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "tools/iwarp/error.h"

namespace ddpsock::rping {

using iwarp::Error;

inline constexpr uint16_t kDefaultPort = 7174;
inline constexpr size_t kMessageSize = 16;
using Message = std::array<uint8_t, kMessageSize>;

// The server's answers: rping sends what is in its buffer, which is zeros, and reads nothing but
// the length.
inline constexpr Message kGoOn{};

// TO (64 bits), STag and size (32 bits each), big-endian.
struct Advert {
  uint64_t to = 0;
  uint32_t stag = 0;
  uint32_t size = 0;
  bool operator==(const Advert&) const = default;
};
Message encode(const Advert& advert);
Advert decode(const Message& message);

// Whether a server that holds `room` bytes can use what a client says. The error says why not.
Status<Error> check_source(const Advert& advert, uint32_t room);
// ... and whether `size` bytes can be written back.
Status<Error> check_sink(const Advert& advert, uint32_t size);

// The data of ping number `ping`, counted from 0: "rdma-ping-N: ", letters from 'A' to 'z' that
// start one further each time, and a NUL at the end. Cut to what fits.
void fill(MutBytes data, uint32_t ping);

// Nothing if both are equal; otherwise where they first differ. REQUIRES: the same size.
Status<Error> compare(Bytes data, Bytes expected);

// What stands before the first NUL, with \xNN for what is no printable ASCII.
std::string to_text(Bytes data);

}  // namespace ddpsock::rping

#endif  // DDPSOCK_TOOLS_RPING_PROTOCOL_H_
