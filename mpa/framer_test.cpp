// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/framer.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/vectors/vectors.h"

namespace ddpsock::mpa {
namespace {

using Octets = std::vector<uint8_t>;

Octets counting(size_t n, uint8_t first = 1) {
  Octets out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

// The RFC's rules read aloud, octet by octet: what the framer must equal.
class NaiveStream {
 public:
  NaiveStream(bool has_crc, bool has_markers) : has_crc_(has_crc), has_markers_(has_markers) {}

  void add(const Octets& ulpdu) {
    const size_t fpdu_at = octets.size();
    if (has_markers_ && octets.size() % 512 == 0) marker(octets.size() + 4);
    length_at_ = octets.size();
    put(static_cast<uint8_t>(ulpdu.size() >> 8));
    put(static_cast<uint8_t>(ulpdu.size()));
    for (uint8_t octet : ulpdu) put(octet);
    for (size_t n = ulpdu.size() + 2; n % 4 != 0; ++n) put(0);
    if (has_markers_ && octets.size() % 512 == 0) marker(length_at_);
    const uint32_t crc = has_crc_ ? base::crc32c(Bytes(octets).subspan(fpdu_at)) : 0;
    for (int shift = 0; shift < 32; shift += 8)
      octets.push_back(static_cast<uint8_t>(crc >> shift));
  }

  Octets octets;

 private:
  void put(uint8_t octet) {
    if (has_markers_ && octets.size() % 512 == 0 && octets.size() != length_at_) marker(length_at_);
    octets.push_back(octet);
  }
  void marker(size_t length_at) {
    const size_t back = length_at > octets.size() ? 0 : octets.size() - length_at;
    octets.insert(octets.end(),
                  {0, 0, static_cast<uint8_t>(back >> 8), static_cast<uint8_t>(back)});
  }

  bool has_crc_, has_markers_;
  size_t length_at_ = 0;
};

struct Sent {
  Octets octets;
  size_t pieces = 0;
};

// Frames `ulpdu`, cut into pieces of `cut` octets, and gathers what came out.
Sent frame(GatherFramer& framer, const Octets& ulpdu, size_t cut, bool has_markers) {
  std::vector<Bytes> in;
  for (size_t at = 0; at < ulpdu.size(); at += cut)
    in.push_back(Bytes(ulpdu).subspan(at, std::min(cut, ulpdu.size() - at)));
  Octets scratch(GatherFramer::scratch_bound(ulpdu.size(), has_markers), 0xa5);
  std::vector<Bytes> pieces(GatherFramer::pieces_bound(ulpdu.size(), in.size(), has_markers));
  const auto framed = framer.frame(in, scratch, pieces);
  EXPECT_TRUE(framed.has_value());
  Sent sent;
  if (!framed) return sent;
  sent.pieces = framed->piece_count;
  for (Bytes piece : std::span(pieces).first(framed->piece_count))
    sent.octets.insert(sent.octets.end(), piece.begin(), piece.end());
  EXPECT_EQ(sent.octets.size(), framed->size);
  for (size_t i = framed->scratch_size; i < scratch.size(); ++i) EXPECT_EQ(scratch[i], 0xa5);
  return sent;
}

TEST(GatherFramer, GoldenVectors) {
  for (const auto& v : vectors::read("mpa.txt")) {
    if (v.kind() != "fpdu" && v.kind() != "fpdu-with-markers") continue;
    SCOPED_TRACE(v.name());
    const bool has_markers = v.kind() != "fpdu";
    GatherFramer framer(true, has_markers);
    EXPECT_EQ(frame(framer, v.hex("ulpdu"), 7, has_markers).octets, v.bytes());
  }
}

class GatherFramerMatrix : public testing::TestWithParam<std::tuple<bool, bool>> {};

// Trap 11: Markers every 512 octets from the first FPDU octet on, FPDUPTR back to the length field,
// in the CRC but not in ULPDU_Length. Lengths walk so that Markers fall at every place they can.
TEST_P(GatherFramerMatrix, Trap11StreamsEqualTheNaiveOnes) {
  const auto [has_crc, has_markers] = GetParam();
  for (size_t start = 0; start < 520; ++start) {
    NaiveStream naive(has_crc, has_markers);
    GatherFramer framer(has_crc, has_markers);
    Octets sent;
    for (size_t length : {start, size_t{1}, size_t{0}, 1300 - start, size_t{3}}) {
      const Octets ulpdu = counting(length);
      naive.add(ulpdu);
      const Octets fpdu = frame(framer, ulpdu, 1 + length / 3, has_markers).octets;
      sent.insert(sent.end(), fpdu.begin(), fpdu.end());
    }
    ASSERT_EQ(sent, naive.octets) << "first ULPDU of " << start;
  }
}

TEST_P(GatherFramerMatrix, LargestUlpdu) {
  const auto [has_crc, has_markers] = GetParam();
  GatherFramer framer(has_crc, has_markers);
  NaiveStream naive(has_crc, has_markers);
  const Octets ulpdu = counting(framer.max_ulpdu());
  naive.add(ulpdu);
  EXPECT_EQ(frame(framer, ulpdu, 4096, has_markers).octets, naive.octets);
}

INSTANTIATE_TEST_SUITE_P(Options, GatherFramerMatrix,
                         testing::Combine(testing::Bool(), testing::Bool()), [](const auto& p) {
                           return std::string(std::get<0>(p.param) ? "Crc" : "NoCrc") +
                                  (std::get<1>(p.param) ? "Markers" : "NoMarkers");
                         });

TEST(GatherFramer, PayloadIsReferredToNotCopied) {
  GatherFramer framer(true, false);
  const Octets header = counting(18), payload = counting(1000);
  const std::vector<Bytes> in{header, payload};
  Octets scratch(GatherFramer::scratch_bound(1018, false), 0xa5);
  std::vector<Bytes> pieces(GatherFramer::pieces_bound(1018, 2, false));
  const auto framed = framer.frame(in, scratch, pieces);
  ASSERT_TRUE(framed);
  ASSERT_EQ(framed->piece_count, 4u);
  EXPECT_EQ(pieces[1].data(), header.data());
  EXPECT_EQ(pieces[2].data(), payload.data());
}

TEST(GatherFramer, NeighboursBecomeOnePiece) {
  GatherFramer framer(true, false);
  const Octets ulpdu = counting(100);
  EXPECT_EQ(frame(framer, ulpdu, 10, false).pieces, 3u);
}

// Several FPDUs into one scratch and one piece list, as an engine batches them.
TEST(GatherFramer, BatchSharesScratchAndPieces) {
  GatherFramer framer(true, true);
  NaiveStream naive(true, true);
  Octets scratch(4096, 0xa5);
  std::vector<Bytes> pieces(64);
  MutBytes scratch_left = scratch;
  std::span<Bytes> pieces_left = pieces;
  const Octets ulpdu = counting(700);
  for (int i = 0; i < 5; ++i) {
    naive.add(ulpdu);
    const Bytes in[] = {ulpdu};
    const auto framed = framer.frame(in, scratch_left, pieces_left);
    ASSERT_TRUE(framed);
    scratch_left = scratch_left.subspan(framed->scratch_size);
    pieces_left = pieces_left.subspan(framed->piece_count);
  }
  Octets sent;
  for (Bytes piece : std::span(pieces).first(pieces.size() - pieces_left.size()))
    sent.insert(sent.end(), piece.begin(), piece.end());
  EXPECT_EQ(sent, naive.octets);
}

TEST(GatherFramer, RefusalsLeaveTheStreamWhereItWas) {
  GatherFramer framer(true, true);
  const Octets ulpdu = counting(600);
  const Bytes in[] = {ulpdu};
  Octets scratch(1000, 0xa5);
  std::vector<Bytes> pieces(40);
  EXPECT_EQ(framer.frame(in, MutBytes(scratch).first(15), pieces).error(),
            FramerError::kScratchTooShort);
  EXPECT_EQ(framer.frame(in, scratch, std::span(pieces).first(2)).error(),
            FramerError::kTooFewPieces);
  const Octets huge(MPA_MAX_ULPDU_WITH_MARKERS, 0);
  const Bytes too_long[] = {huge, Bytes(ulpdu).first(1)};
  EXPECT_EQ(framer.frame(too_long, scratch, pieces).error(), FramerError::kUlpduTooLong);
  for (uint8_t octet : scratch) ASSERT_EQ(octet, 0xa5);
  NaiveStream naive(true, true);
  naive.add(ulpdu);
  EXPECT_EQ(frame(framer, ulpdu, 600, true).octets, naive.octets);
}

}  // namespace
}  // namespace ddpsock::mpa
