// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/hello.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddpsock::stream {
namespace {

Hello sample() {
  Hello h;
  h.max_payload = 61'440;
  for (uint8_t i = 0; i < h.host.size(); ++i) h.host[i] = static_cast<uint8_t>(i + 1);
  return h;
}

std::vector<uint8_t> encoded(const Hello& h) {
  std::vector<uint8_t> out(DDPSOCK_HELLO_SIZE, 0xa5);
  EXPECT_EQ(encode(out, h), size_t{DDPSOCK_HELLO_SIZE});
  return out;
}

TEST(Hello, GoldenBytes) {
  EXPECT_EQ(encoded(sample()),
            (std::vector<uint8_t>{0x44, 0x44, 0x50, 0x73, 0x01, 0x20, 0x00, 0x01, 0x00, 0x00, 0xf0,
                                  0x00, 0x00, 0x00, 0x00, 0x00, 1,    2,    3,    4,    5,    6,
                                  7,    8,    9,    10,   11,   12,   13,   14,   15,   16}));
}

TEST(Hello, RoundTripIgnoresWhatFollows) {
  std::vector<uint8_t> bytes = encoded(sample());
  bytes.insert(bytes.end(), {0xde, 0xad, 0xbe, 0xef});  // as irdma hands them up
  EXPECT_EQ(decode_hello(bytes), sample());
}

TEST(Hello, EveryTruncationIsNoHello) {
  const std::vector<uint8_t> bytes = encoded(sample());
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(decode_hello(Bytes(bytes).first(n))) << n << " bytes";
}

TEST(Hello, AnotherMagicVersionOrLengthIsNoHello) {
  for (const size_t at : {DDPSOCK_HELLO_MAGIC_OFFSET, DDPSOCK_HELLO_VERSION_OFFSET}) {
    std::vector<uint8_t> bytes = encoded(sample());
    bytes[at] ^= 1;
    EXPECT_FALSE(decode_hello(bytes)) << "byte " << at;
  }
  for (const uint8_t length : {0, DDPSOCK_HELLO_SIZE - 1, DDPSOCK_HELLO_SIZE + 1, 255}) {
    std::vector<uint8_t> bytes = encoded(sample());
    bytes[DDPSOCK_HELLO_LENGTH_OFFSET] = length;
    EXPECT_FALSE(decode_hello(bytes)) << "length " << int{length};
  }
}

Hello sample_with_offer() {
  Hello h = sample();
  h.features |= DDPSOCK_FEATURE_MEMORY;
  h.memory = MemoryOffer{.pid = 0x01020304, .fd = 0x05060708, .secret = {9, 8, 7}};
  return h;
}

TEST(Hello, AnOfferOfMemoryFollowsTheHello) {
  std::vector<uint8_t> bytes(DDPSOCK_HELLO_MAX_SIZE + 5, 0xa5);
  EXPECT_EQ(encode(bytes, sample_with_offer()), size_t{DDPSOCK_HELLO_MAX_SIZE});
  EXPECT_EQ(bytes[DDPSOCK_HELLO_LENGTH_OFFSET], DDPSOCK_HELLO_MAX_SIZE);
  EXPECT_EQ(bytes[DDPSOCK_OFFER_PID_OFFSET], 1);
  EXPECT_EQ(decode_hello(bytes), sample_with_offer());
  EXPECT_FALSE(encode(MutBytes(bytes).first(DDPSOCK_HELLO_MAX_SIZE - 1), sample_with_offer()));
  // The bit without the bytes offers nothing.
  bytes[DDPSOCK_HELLO_LENGTH_OFFSET] = DDPSOCK_HELLO_MAX_SIZE - 1;
  EXPECT_FALSE(decode_hello(bytes)->memory);
}

TEST(Hello, ALaterVersionMayBeLonger) {
  std::vector<uint8_t> bytes = encoded(sample());
  bytes[DDPSOCK_HELLO_LENGTH_OFFSET] = DDPSOCK_HELLO_SIZE + 4;
  bytes.resize(DDPSOCK_HELLO_SIZE + 4);
  EXPECT_EQ(decode_hello(bytes), sample());
}

TEST(Hello, RefusesAShortBuffer) {
  std::vector<uint8_t> out(DDPSOCK_HELLO_SIZE - 1, 0xa5);
  EXPECT_FALSE(encode(out, sample()));
  for (const uint8_t b : out) EXPECT_EQ(b, 0xa5);
}

}  // namespace
}  // namespace ddpsock::stream
