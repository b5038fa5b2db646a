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

struct Hello {
  uint16_t features = DDPSOCK_FEATURE_STREAM;
  uint32_t max_payload = 0;  // largest chunk this side wants to receive, bytes of stream
  uint32_t credits = DDPSOCK_CREDITS_UNLIMITED;
  std::array<uint8_t, DDPSOCK_HELLO_HOST_SIZE> host{};  // all zero: not told
  bool operator==(const Hello&) const = default;
};

// Bytes written, or nothing if `out` is shorter than DDPSOCK_HELLO_SIZE.
std::optional<size_t> encode(MutBytes out, const Hello& hello);

// The hello at the start of `private_data`; nothing if there is none: a stranger, or a version that
// is not 1 (the peer must then be treated as a stranger). Bytes after the hello are ignored.
std::optional<Hello> decode_hello(Bytes private_data);

}  // namespace ddpsock::stream

#endif  // DDPSOCK_STREAM_HELLO_H_
