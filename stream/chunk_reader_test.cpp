// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every verdict, and every number of bytes that it can be asked with.
#include "stream/chunk_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "stream/wire_testing.h"

namespace ddpsock::engine {
namespace {

using Verdict = Fpdu::Verdict;
using Buffer = std::vector<uint8_t>;

Verdict verdict_on(const Buffer& bytes, uint32_t msn = 1, uint32_t mo = 0, bool has_crc = true) {
  return ChunkReader(msn, mo, has_crc).look(bytes).verdict;
}

TEST(ChunkReader, EveryTruncationOfEverySmallChunk) {
  for (uint32_t n = 0; n < 70; ++n) {
    const Buffer f = chunk(Buffer(n, 'x'), 7) + Buffer(9, 0xff);
    const uint32_t size = chunk_size(n);
    for (size_t have = 0; have <= f.size(); ++have) {
      const Fpdu fpdu = ChunkReader(7, 0, true).look(Bytes(f).first(have));
      if (have < kChunkHeader) {
        EXPECT_EQ(fpdu.verdict, Verdict::kNoHeader);
        continue;
      }
      EXPECT_EQ(fpdu.verdict, have < size ? Verdict::kPartial : Verdict::kChunk)
          << n << " " << have;
      EXPECT_TRUE(fpdu.is_of_stream);
      EXPECT_EQ(fpdu.size, size);
      EXPECT_EQ(fpdu.payload, n);
      EXPECT_EQ(fpdu.trailer(), chunk_pad(n) + MPA_CRC_SIZE);
    }
  }
}

TEST(ChunkReader, TheLargestChunk) {
  const Buffer f = chunk(Buffer(kMaxChunkPayload, 'x'), 1);
  EXPECT_EQ(verdict_on(f), Verdict::kChunk);
  EXPECT_EQ(ChunkReader(1, 0, true).look(f).size, kMaxFpdu);
}

TEST(ChunkReader, AnyChangedBitIsSeen) {
  const Buffer good = chunk({'a', 'b', 'c', 'd', 'e'}, 1);
  for (size_t bit = 8 * MPA_ULPDU_LENGTH_SIZE; bit < 8 * good.size(); ++bit) {
    Buffer f = good;
    f[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_NE(verdict_on(f), Verdict::kChunk) << bit;
    EXPECT_NE(verdict_on(f), Verdict::kPartial) << bit;
  }
}

TEST(ChunkReader, WithoutCrcItsWordIsNotLookedAt) {
  Buffer f = chunk({'a'}, 1);
  f.back() ^= 1;
  EXPECT_EQ(verdict_on(f), Verdict::kBadCrc);
  EXPECT_EQ(verdict_on(f, 1, 0, false), Verdict::kChunk);
}

TEST(ChunkReader, WalksOverChunksAndTheSegmentsOfAStranger) {
  const Buffer run = chunk({'a'}, 0xffffffff) + segment(Buffer(400, 'b'), 0, 0, false) +
                     segment({}, 0, 400, false) + segment({'c'}, 0, 400, true) + chunk({'d'}, 1);
  ChunkReader reader(0xffffffff, 0, true);
  std::string payload;
  size_t at = 0;
  while (at < run.size()) {
    const Fpdu fpdu = reader.look(Bytes(run).subspan(at));
    ASSERT_EQ(fpdu.verdict, Verdict::kChunk) << at;
    payload.append(run.begin() + static_cast<ptrdiff_t>(at + kChunkHeader),
                   run.begin() + static_cast<ptrdiff_t>(at + kChunkHeader + fpdu.payload));
    at += fpdu.size;
    reader.take(fpdu);
  }
  EXPECT_EQ(payload, "a" + std::string(400, 'b') + "cd");
  EXPECT_EQ(reader.msn(), 2u);
}

TEST(ChunkReader, ASendHasNoMoreBytesThanItsOffsetCounts) {
  EXPECT_EQ(verdict_on(segment(Buffer(8, 'x'), 1, UINT32_MAX - 8, true), 1, UINT32_MAX - 8),
            Verdict::kChunk);
  EXPECT_EQ(verdict_on(segment(Buffer(8, 'x'), 1, UINT32_MAX - 7, true), 1, UINT32_MAX - 7),
            Verdict::kControl);
}

struct Class {
  const char* name;
  void (*change)(Buffer&);
  Verdict verdict;
};
class Malformed : public testing::TestWithParam<Class> {};

TEST_P(Malformed, IsNotOfTheStream) {
  Buffer f = chunk(Buffer(40, 'x'), 1);
  GetParam().change(f);
  seal(f);
  const Fpdu fpdu = ChunkReader(1, 0, true).look(f);
  EXPECT_EQ(fpdu.verdict, GetParam().verdict);
  EXPECT_FALSE(fpdu.is_of_stream);
  EXPECT_EQ(fpdu.payload, 0u);
  EXPECT_EQ(fpdu.msn, 1u) << "the place does not move";
  EXPECT_EQ(fpdu.mo, 0u);
}
INSTANTIATE_TEST_SUITE_P(
    Classes, Malformed,
    testing::Values(Class{"ddp_version", [](Buffer& f) { f[2] = 0x42; }, Verdict::kControl},
                    Class{"msn_skips", [](Buffer& f) { f[15] = 2; }, Verdict::kControl},
                    Class{"msn_again", [](Buffer& f) { f[15] = 0; }, Verdict::kControl},
                    Class{"mo_skips", [](Buffer& f) { f[19] = 4; }, Verdict::kControl},
                    Class{"unknown_queue", [](Buffer& f) { f[11] = 9; }, Verdict::kControl},
                    Class{"terminate_queue", [](Buffer& f) { f[11] = 2; }, Verdict::kControl},
                    Class{"opcode", [](Buffer& f) { f[3] = 0x4c; }, Verdict::kControl},
                    Class{"invalidates", [](Buffer& f) { f[3] = 0x44; }, Verdict::kControl},
                    Class{"tagged", [](Buffer& f) { f[2] = 0xc1; }, Verdict::kControl},
                    Class{"no_length", [](Buffer& f) { f[0] = f[1] = 0; }, Verdict::kMalformed},
                    Class{"shorter_than_any_header",
                          [](Buffer& f) {
                            f[0] = 0;
                            f[1] = 13;
                          },
                          Verdict::kMalformed},
                    Class{"shorter_than_its_header",
                          [](Buffer& f) {
                            f[0] = 0;
                            f[1] = 17;
                          },
                          Verdict::kControl}),
    [](const auto& p) { return p.param.name; });

TEST(ChunkReader, WhatIsNotOfTheStreamIsWaitedForLikewise) {
  const Buffer f = empty_write() + Buffer(4, 0);
  EXPECT_EQ(ChunkReader(1, 0, true).look(f).size, 20u);
  Buffer longer = chunk(Buffer(40, 'x'), 1);
  longer[2] = DDP_CTRL_TAGGED | DDP_CTRL_LAST | DDP_VERSION;
  for (size_t have = kChunkHeader; have < longer.size(); ++have)
    EXPECT_EQ(ChunkReader(1, 0, true).look(Bytes(longer).first(have)).verdict, Verdict::kPartial);
  EXPECT_EQ(verdict_on(longer), Verdict::kControl);
}

TEST(ChunkReader, PartsThatLieApart) {
  const Buffer f = chunk(Buffer(100, 'x'), 1);
  const Bytes all(f);
  for (size_t cut = 20; cut < 100; ++cut) {
    const iovec pieces[] = {{const_cast<uint8_t*>(f.data()) + 20, cut - 20},
                            {const_cast<uint8_t*>(f.data()) + cut, 120 - cut}};
    EXPECT_TRUE(ChunkReader::is_intact(base::crc32c(all.first(20)), pieces, all.subspan(120)));
    EXPECT_FALSE(ChunkReader::is_intact(1, pieces, all.subspan(120)));
  }
}

}  // namespace
}  // namespace ddpsock::engine
