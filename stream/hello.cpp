// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/hello.h"

#include <algorithm>
#include <cassert>

namespace ddpsock::stream {

std::optional<size_t> encode(MutBytes out, const Hello& hello) {
  if (out.size() < DDPSOCK_HELLO_SIZE) return std::nullopt;
  uint8_t* p = base::store_be32(out.data(), DDPSOCK_HELLO_MAGIC);
  *p++ = DDPSOCK_HELLO_VERSION;
  *p++ = DDPSOCK_HELLO_SIZE;
  p = base::store_be16(p, hello.features);
  p = base::store_be32(p, hello.max_payload);
  p = base::store_be32(p, hello.credits);
  p = std::copy(hello.host.begin(), hello.host.end(), p);
  assert(p == out.data() + DDPSOCK_HELLO_SIZE);
  return DDPSOCK_HELLO_SIZE;
}

std::optional<Hello> decode_hello(Bytes d) {
  if (d.size() < DDPSOCK_HELLO_SIZE) return std::nullopt;
  if (base::load_be32(&d[DDPSOCK_HELLO_MAGIC_OFFSET]) != DDPSOCK_HELLO_MAGIC) return std::nullopt;
  if (d[DDPSOCK_HELLO_VERSION_OFFSET] != DDPSOCK_HELLO_VERSION) return std::nullopt;
  const size_t length = d[DDPSOCK_HELLO_LENGTH_OFFSET];
  if (length < DDPSOCK_HELLO_SIZE || length > d.size()) return std::nullopt;
  Hello h;
  h.features = base::load_be16(&d[DDPSOCK_HELLO_FEATURES_OFFSET]);
  h.max_payload = base::load_be32(&d[DDPSOCK_HELLO_MAX_PAYLOAD_OFFSET]);
  h.credits = base::load_be32(&d[DDPSOCK_HELLO_CREDITS_OFFSET]);
  std::copy_n(d.begin() + DDPSOCK_HELLO_HOST_OFFSET, DDPSOCK_HELLO_HOST_SIZE, h.host.begin());
  return h;
}

}  // namespace ddpsock::stream
