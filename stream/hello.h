// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The hello that ddpsock peers exchange in MPA private data (doc/stream-protocol.md). Sans-IO.
#ifndef DDPSOCK_STREAM_HELLO_H_
#define DDPSOCK_STREAM_HELLO_H_

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "stream/format.h"

namespace ddpsock::stream {

// Memory that both ends on one host may use beside the connection (shm).
struct MemoryOffer {
  uint32_t pid = 0;
  uint32_t fd = 0;
  std::array<uint8_t, DDPSOCK_OFFER_SECRET_SIZE> secret{};
  bool operator==(const MemoryOffer&) const = default;
};

struct Hello {
  uint16_t features = DDPSOCK_FEATURE_STREAM;
  uint32_t max_payload = 0;  // largest chunk this side wants to receive, bytes of stream
  uint32_t credits = DDPSOCK_CREDITS_UNLIMITED;
  std::array<uint8_t, DDPSOCK_HELLO_HOST_SIZE> host{};  // all zero: not told
  std::optional<MemoryOffer> memory{};                  // sets DDPSOCK_FEATURE_MEMORY
  bool operator==(const Hello&) const = default;
};

// Bytes written, or nothing if `out` is too short: DDPSOCK_HELLO_MAX_SIZE always suffices.
std::optional<size_t> encode(MutBytes out, const Hello& hello);

// The hello at the start of `private_data`; nothing if there is none: a stranger, or a version that
// is not 1 (the peer must then be treated as a stranger). Bytes after the hello are ignored.
std::optional<Hello> decode_hello(Bytes private_data);

}  // namespace ddpsock::stream

#endif  // DDPSOCK_STREAM_HELLO_H_
