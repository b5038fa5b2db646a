// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/terminate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/vectors/vectors.h"

namespace ddpsock::rdmap {
namespace {

Terminate fields(const vectors::Vector& v) {
  Terminate t;
  t.code = {static_cast<uint8_t>(v.number("layer")), static_cast<uint8_t>(v.number("etype")),
            static_cast<uint8_t>(v.number("code"))};
  if (v.has("segment-length")) t.segment_length = static_cast<uint16_t>(v.number("segment-length"));
  if (v.has("ddp-header")) {
    const std::vector<uint8_t> h = v.hex("ddp-header");
    std::copy(h.begin(), h.end(), t.ddp_header.begin());
    t.ddp_header_length = static_cast<uint8_t>(h.size());
  }
  if (v.has("read-request")) {
    const std::vector<uint8_t> h = v.hex("read-request");
    std::copy(h.begin(), h.end(), t.read_request.begin());
    t.has_read_request = true;
  }
  return t;
}

void expect_equal(const Terminate& got, const Terminate& want, const std::string& name) {
  EXPECT_EQ(got.code, want.code) << name;
  EXPECT_EQ(got.segment_length, want.segment_length) << name;
  EXPECT_EQ(got.ddp_header_length, want.ddp_header_length) << name;
  EXPECT_EQ(got.ddp_header, want.ddp_header) << name;
  EXPECT_EQ(got.has_read_request, want.has_read_request) << name;
  EXPECT_EQ(got.read_request, want.read_request) << name;
}

TEST(Terminate, Trap30GoldenVectorsInBothForms) {
  int seen = 0;
  for (const vectors::Vector& v : vectors::read("rdmap.txt")) {
    if (v.kind() != "terminate") continue;
    ++seen;
    const std::vector<uint8_t> wire = v.bytes();
    const auto got = decode_terminate(wire, Phase::kEstablished);
    ASSERT_EQ(got.has_value(), !v.has("error")) << v.name();
    if (!got) continue;
    expect_equal(got->terminate, fields(v), v.name());
    EXPECT_EQ(got->is_swapped, v.flag("siw")) << v.name();
    for (size_t n = 0; n < wire.size(); ++n) {
      EXPECT_FALSE(decode_terminate(Bytes(wire).first(n), Phase::kEstablished))
          << v.name() << " cut to " << n;
    }
    if (v.flag("siw")) continue;  // never sent by us
    std::vector<uint8_t> out(RDMAP_TERM_MAX_SIZE + 1, 0xa5);
    ASSERT_EQ(encode(MutBytes(out), got->terminate), wire.size()) << v.name();
    EXPECT_TRUE(std::equal(wire.begin(), wire.end(), out.begin())) << v.name();
    EXPECT_EQ(out[wire.size()], 0xa5);
    EXPECT_FALSE(encode(MutBytes(out).first(wire.size() - 1), got->terminate)) << v.name();
  }
  EXPECT_EQ(seen, 8);
}

TermCode decode(uint8_t first, uint8_t code, Phase phase) {
  const uint8_t wire[] = {first, code, 0, 0};
  const auto d = decode_terminate(wire, phase);
  EXPECT_TRUE(d.has_value());
  return d ? d->terminate.code : TermCode{};
}

TEST(Terminate, Trap30FlaglessOnesAreResolvedByThePhase) {
  // 0x20 is LLP by the RFC, or siw's RDMAP remote operation error.
  EXPECT_EQ(decode(0x20, RDMAP_ECODE_MPA_RTR, Phase::kStartUp), TermCode::mpa(RDMAP_ECODE_MPA_RTR));
  EXPECT_EQ(decode(0x20, RDMAP_ECODE_MPA_IRD, Phase::kStartUp), TermCode::mpa(RDMAP_ECODE_MPA_IRD));
  EXPECT_EQ(decode(0x20, 6, Phase::kEstablished),
            TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE));
  EXPECT_EQ(decode(0x20, 5, Phase::kEstablished), TermCode::operation(RDMAP_ECODE_VERSION));
  // And the other way round: 0x02 is RDMAP by the RFC, or siw's LLP.
  EXPECT_EQ(decode(0x02, 6, Phase::kStartUp), TermCode::mpa(RDMAP_ECODE_MPA_IRD));
  EXPECT_EQ(decode(0x02, 6, Phase::kEstablished),
            TermCode::operation(RDMAP_ECODE_UNEXPECTED_OPCODE));
}

TEST(Terminate, Trap30FlaglessOnesWithACodeOfOneLayerOnlyNeedNoPhase) {
  for (Phase phase : {Phase::kStartUp, Phase::kEstablished}) {
    EXPECT_EQ(decode(0x20, RDMAP_ECODE_MPA_CRC, phase), TermCode::mpa(RDMAP_ECODE_MPA_CRC));
    EXPECT_EQ(decode(0x02, RDMAP_ECODE_MPA_CRC, phase), TermCode::mpa(RDMAP_ECODE_MPA_CRC));
    EXPECT_EQ(decode(0x02, RDMAP_ECODE_UNSPECIFIED, phase),
              TermCode::operation(RDMAP_ECODE_UNSPECIFIED));
    EXPECT_EQ(decode(0x20, RDMAP_ECODE_CATASTROPHIC_GLOBAL, phase),
              TermCode::operation(RDMAP_ECODE_CATASTROPHIC_GLOBAL));
    EXPECT_EQ(decode(0x21, 5, phase), TermCode::ddp(ddp::Error::kTooLong));
    EXPECT_EQ(decode(0x12, 5, phase), TermCode::ddp(ddp::Error::kTooLong));
    EXPECT_EQ(decode(0x11, 3, phase), TermCode::ddp(ddp::Error::kToWrap));
    EXPECT_EQ(decode(0x10, 0, phase), TermCode::ddp(ddp::Error::kLocalCatastrophic));
  }
}

TEST(Terminate, UnknownCodesAreKept) {
  EXPECT_EQ(decode(0x77, 0x99, Phase::kEstablished), (TermCode{7, 7, 0x99}));
  EXPECT_STREQ(to_string(TermCode{7, 7, 0x99}), "unknown error");
}

TEST(Terminate, EveryFirstByteCodeAndFlagDecodesOrFailsCleanly) {
  std::vector<uint8_t> wire(RDMAP_TERM_MAX_SIZE, 0x41);
  for (unsigned first = 0; first < 256; ++first) {
    for (unsigned flags = 0; flags < 256; ++flags) {
      wire[0] = static_cast<uint8_t>(first);
      wire[2] = static_cast<uint8_t>(flags);
      for (size_t n : {size_t{3}, size_t{4}, size_t{23}, wire.size()}) {
        const auto d = decode_terminate(Bytes(wire).first(n), Phase::kEstablished);
        if (d) {
          EXPECT_LE(d->terminate.ddp_header_length, DDP_MAX_HEADER_SIZE);
          EXPECT_NE(to_string(d->terminate.code), nullptr);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddpsock::rdmap
