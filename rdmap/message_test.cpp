// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/message.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/vectors/vectors.h"

namespace ddpsock::rdmap {
namespace {

ReadRequest read_request_fields(const vectors::Vector& v) {
  return {static_cast<uint32_t>(v.number("sink-stag")), v.number("sink-to"),
          static_cast<uint32_t>(v.number("size")), static_cast<uint32_t>(v.number("source-stag")),
          v.number("source-to")};
}

AtomicRequest atomic_request_fields(const vectors::Vector& v) {
  return {static_cast<AtomicOp>(v.number("aopcode")),
          static_cast<uint32_t>(v.number("request-identifier")),
          static_cast<uint32_t>(v.number("stag")),
          v.number("to"),
          v.number("data"),
          v.number("mask"),
          v.number("compare-data"),
          v.number("compare-mask")};
}

// Decodes to `fields`, encodes back to the same bytes, and fails at every other length.
template <typename Fields, typename Decode>
void expect_vector(const vectors::Vector& v, const Fields& fields, Decode decode) {
  std::vector<uint8_t> wire = v.bytes();
  EXPECT_EQ(decode(wire), fields) << v.name();
  std::vector<uint8_t> out(wire.size() + 1, 0xa5);
  EXPECT_EQ(encode(MutBytes(out), fields), wire.size()) << v.name();
  EXPECT_TRUE(std::equal(wire.begin(), wire.end(), out.begin())) << v.name();
  EXPECT_EQ(out.back(), 0xa5);
  for (size_t n = 0; n < wire.size(); ++n) {
    EXPECT_FALSE(decode(Bytes(wire).first(n))) << v.name() << " cut to " << n;
    EXPECT_FALSE(encode(MutBytes(out).first(n), fields)) << v.name();
  }
  wire.push_back(0);
  EXPECT_FALSE(decode(wire)) << v.name() << " with a byte too many";
}

TEST(Message, GoldenVectors) {
  int seen = 0;
  for (const vectors::Vector& v : vectors::read("rdmap.txt")) {
    if (v.kind() == "read-request") {
      expect_vector(v, read_request_fields(v), decode_read_request);
    } else if (v.kind() == "atomic-request" && v.has("error")) {
      EXPECT_FALSE(decode_atomic_request(v.bytes())) << v.name();
    } else if (v.kind() == "atomic-request") {
      expect_vector(v, atomic_request_fields(v), decode_atomic_request);
    } else if (v.kind() == "atomic-response") {
      expect_vector(
          v,
          AtomicResponse{static_cast<uint32_t>(v.number("request-identifier")), v.number("value")},
          decode_atomic_response);
    } else {
      continue;
    }
    ++seen;
  }
  EXPECT_EQ(seen, 6);
}

TEST(Message, Trap25ControlBytes) {
  EXPECT_EQ(control_byte(Opcode::kWrite), 0x40);
  EXPECT_EQ(control_byte(Opcode::kReadRequest), 0x41);
  EXPECT_EQ(control_byte(Opcode::kReadResponse), 0x42);
  EXPECT_EQ(control_byte(Opcode::kSend), 0x43);
  EXPECT_EQ(control_byte(Opcode::kSendInvalidate), 0x44);
  EXPECT_EQ(control_byte(Opcode::kSendSe), 0x45);
  EXPECT_EQ(control_byte(Opcode::kSendSeInvalidate), 0x46);
  EXPECT_EQ(control_byte(Opcode::kTerminate), 0x47);
  EXPECT_EQ(control_byte(Opcode::kImmediate), 0x48);
  EXPECT_EQ(control_byte(Opcode::kImmediateSe), 0x49);
  EXPECT_EQ(control_byte(Opcode::kAtomicRequest), 0x4a);
  EXPECT_EQ(control_byte(Opcode::kAtomicResponse), 0x4b);
  for (unsigned op = 0x4c; op <= 0x4f; ++op) EXPECT_FALSE(opcode_of(static_cast<uint8_t>(op)));
  EXPECT_EQ(opcode_of(0x73), Opcode::kSend) << "reserved bits are ignored";
  EXPECT_TRUE(is_version_known(0x43));
  EXPECT_TRUE(is_version_known(0x03)) << "RFC 5040 section 4.1: both are valid";
  EXPECT_FALSE(is_version_known(0x83));
  EXPECT_FALSE(is_version_known(0xc3));
}

TEST(Message, Trap32AtomicCodesAreThoseOfRfc7306) {
  EXPECT_EQ(static_cast<int>(AtomicOp::kFetchAdd), 0);
  EXPECT_EQ(static_cast<int>(AtomicOp::kCmpSwap), 2);
}

// RFC 7306 section 5.1.1, bit by bit as its pseudocode has it.
uint64_t fetch_add_by_bits(uint64_t original, uint64_t data, uint64_t mask) {
  uint64_t out = 0;
  unsigned carry = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const unsigned sum = carry + (original >> bit & 1) + (data >> bit & 1);
    if (sum & 1) out |= uint64_t{1} << bit;
    carry = (sum >> 1) && !(mask >> bit & 1) ? 1 : 0;
  }
  return out;
}

TEST(Message, FetchAddAgreesWithThePseudocode) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    AtomicRequest r;
    r.data = random();
    r.mask = i % 4 == 0 ? 0 : random() & random();
    const uint64_t original = i % 3 == 0 ? ~uint64_t{0} : random();
    ASSERT_EQ(apply(r, original), fetch_add_by_bits(original, r.data, r.mask));
  }
}

TEST(Message, CmpSwapComparesAndSwapsMaskedBitsOnly) {
  AtomicRequest r{AtomicOp::kCmpSwap, 0, 0, 0, 0x1111, 0x00ff, 0xab00, 0xff00};
  EXPECT_EQ(apply(r, 0xabcd), 0xab11u);
  EXPECT_EQ(apply(r, 0xaacd), 0xaacdu);
  r.compare_mask = 0;
  EXPECT_EQ(apply(r, 0x1234), 0x1211u);
}

}  // namespace
}  // namespace ddpsock::rdmap
