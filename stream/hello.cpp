// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/hello.h"

#include <algorithm>
#include <cassert>

namespace ddpsock::stream {

std::optional<size_t> encode(MutBytes out, const Hello& hello) {
  const size_t size = hello.memory ? DDPSOCK_HELLO_MAX_SIZE : DDPSOCK_HELLO_SIZE;
  if (out.size() < size) return std::nullopt;
  const uint16_t memory = hello.memory ? DDPSOCK_FEATURE_MEMORY : 0;
  uint8_t* p = base::store_be32(out.data(), DDPSOCK_HELLO_MAGIC);
  *p++ = DDPSOCK_HELLO_VERSION;
  *p++ = static_cast<uint8_t>(size);
  p = base::store_be16(p, static_cast<uint16_t>(hello.features | memory));
  p = base::store_be32(p, hello.max_payload);
  p = base::store_be32(p, hello.credits);
  p = std::copy(hello.host.begin(), hello.host.end(), p);
  if (hello.memory) {
    p = base::store_be32(p, hello.memory->pid);
    p = base::store_be32(p, hello.memory->fd);
    p = std::copy(hello.memory->secret.begin(), hello.memory->secret.end(), p);
  }
  assert(p == out.data() + size);
  return size;
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
  if ((h.features & DDPSOCK_FEATURE_MEMORY) != 0 && length >= DDPSOCK_HELLO_MAX_SIZE) {
    MemoryOffer& offer = h.memory.emplace();
    offer.pid = base::load_be32(&d[DDPSOCK_OFFER_PID_OFFSET]);
    offer.fd = base::load_be32(&d[DDPSOCK_OFFER_FD_OFFSET]);
    std::copy_n(d.begin() + DDPSOCK_OFFER_SECRET_OFFSET, DDPSOCK_OFFER_SECRET_SIZE,
                offer.secret.begin());
  }
  return h;
}

}  // namespace ddpsock::stream
