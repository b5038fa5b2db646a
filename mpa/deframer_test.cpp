// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/deframer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <type_traits>
#include <vector>

#include "mpa/framer.h"
#include "tests/vectors/vectors.h"

namespace ddpsock::mpa {
namespace {

using Octets = std::vector<uint8_t>;
using Event = Deframer::Event;

static_assert(std::is_trivially_copyable_v<Deframer>, "lives in shared memory");
static_assert(sizeof(Deframer) < 100);

// DDP's: tagged 14, untagged 18.
constexpr Deframer::HeaderRule kDdp{0x80, 14, 18};

struct Options {
  bool has_crc = true;
  bool has_markers = false;
};

Deframer make_deframer(Options o, uint16_t max_ulpdu = MPA_MAX_ULPDU) {
  return Deframer({.has_crc = o.has_crc,
                   .has_markers = o.has_markers,
                   .header_rule = kDdp,
                   .max_ulpdu = max_ulpdu});
}

Octets make_ulpdu(size_t length, bool is_tagged) {
  Octets out(length);
  for (size_t i = 0; i < length; ++i) out[i] = static_cast<uint8_t>(i * 7 + length);
  if (length > 0) out[0] = is_tagged ? 0xc1 : 0x41;
  return out;
}

Octets frame_all(Options o, const std::vector<Octets>& ulpdus) {
  GatherFramer framer(o.has_crc, o.has_markers);
  Octets stream;
  for (const Octets& ulpdu : ulpdus) {
    Octets scratch(GatherFramer::scratch_bound(ulpdu.size(), o.has_markers));
    std::vector<Bytes> pieces(GatherFramer::pieces_bound(ulpdu.size(), 1, o.has_markers));
    const Bytes in[] = {ulpdu};
    const auto framed = framer.frame(in, scratch, pieces).value();
    for (Bytes piece : std::span(pieces).first(framed.piece_count))
      stream.insert(stream.end(), piece.begin(), piece.end());
  }
  return stream;
}

// Feeds a deframer and puts each ULPDU together again from header and payload.
class Receiver {
 public:
  explicit Receiver(const Deframer& start) : deframer(start) {}

  // Until the input is used up or the stream failed.
  void feed(Bytes input) {
    for (;;) {
      const auto s = deframer.step(input);
      input = input.subspan(s.taken);
      switch (s.event) {
        case Event::kNeedMore:
          EXPECT_TRUE(input.empty());
          return;
        case Event::kError:
          return;
        case Event::kHeader:
          start();
          break;
        case Event::kPayload:
          std::copy(s.payload.begin(), s.payload.end(), payload_.begin() + s.payload_offset);
          break;
        case Event::kComplete:
          finish();
          break;
      }
    }
  }

  void start() {
    payload_.assign(deframer.payload_size(), 0xa5);
    EXPECT_EQ(deframer.header().size() + payload_.size(), deframer.ulpdu_length());
  }
  void finish() {
    Octets whole(deframer.header().begin(), deframer.header().end());
    whole.insert(whole.end(), payload_.begin(), payload_.end());
    ulpdus.push_back(std::move(whole));
  }
  MutBytes payload() { return payload_; }

  Deframer deframer;
  std::vector<Octets> ulpdus;

 private:
  Octets payload_;
};

std::vector<Octets> several_ulpdus() {
  return {make_ulpdu(18, false),  make_ulpdu(14, true),   make_ulpdu(23, false),
          make_ulpdu(508, false), make_ulpdu(1460, true), make_ulpdu(15, true),
          make_ulpdu(497, false), make_ulpdu(1025, true), make_ulpdu(19, false)};
}

class DeframerMatrix : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  Options options() const { return {std::get<0>(GetParam()), std::get<1>(GetParam())}; }
};

INSTANTIATE_TEST_SUITE_P(Options, DeframerMatrix,
                         testing::Combine(testing::Bool(), testing::Bool()), [](const auto& p) {
                           return std::string(std::get<0>(p.param) ? "Crc" : "NoCrc") +
                                  (std::get<1>(p.param) ? "Markers" : "NoMarkers");
                         });

// Trap 18: any segmentation, several FPDUs in one read, parts of pad and CRC at the end of a read.
TEST_P(DeframerMatrix, Trap18EveryCutInTwo) {
  const auto ulpdus = several_ulpdus();
  const Octets stream = frame_all(options(), ulpdus);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    Receiver receiver(make_deframer(options()));
    receiver.feed(Bytes(stream).first(cut));
    receiver.feed(Bytes(stream).subspan(cut));
    ASSERT_EQ(receiver.ulpdus, ulpdus) << "cut at " << cut;
    ASSERT_EQ(receiver.deframer.end(), DeframerError::kNone);
  }
}

TEST_P(DeframerMatrix, Trap18EveryChunkSize) {
  const auto ulpdus = several_ulpdus();
  const Octets stream = frame_all(options(), ulpdus);
  for (size_t chunk = 1; chunk <= stream.size(); ++chunk) {
    Receiver receiver(make_deframer(options()));
    for (size_t at = 0; at < stream.size(); at += chunk)
      receiver.feed(Bytes(stream).subspan(at, std::min(chunk, stream.size() - at)));
    ASSERT_EQ(receiver.ulpdus, ulpdus) << "chunks of " << chunk;
  }
}

TEST_P(DeframerMatrix, EveryHeaderAndLengthAtEveryPlaceOfAMarker) {
  for (size_t first = 14; first < 540; ++first) {
    const std::vector<Octets> ulpdus{make_ulpdu(first, true), make_ulpdu(18, false),
                                     make_ulpdu(600, true)};
    Receiver receiver(make_deframer(options()));
    for (uint8_t octet : frame_all(options(), ulpdus)) receiver.feed({&octet, 1});
    ASSERT_EQ(receiver.ulpdus, ulpdus) << "first ULPDU of " << first;
  }
}

// An engine that asks what to read, and reads payload straight to its place.
TEST_P(DeframerMatrix, ReadingByWantGivesTheSameAndNeverAnOctetTooMany) {
  const auto ulpdus = several_ulpdus();
  const Octets stream = frame_all(options(), ulpdus);
  for (size_t most : {size_t{1}, size_t{3}, size_t{100}, size_t{100'000}}) {
    Receiver receiver(make_deframer(options()));
    Deframer& d = receiver.deframer;
    size_t at = 0, payload_done = 0;
    while (at < stream.size()) {
      const auto want = d.want();
      ASSERT_GT(want.octets, 0u);
      ASSERT_LE(at + want.octets, stream.size()) << "the stream ends before that";
      const Bytes read = Bytes(stream).subspan(at, std::min(want.octets, most));
      at += read.size();
      const size_t left = d.octets_left();
      if (want.part == Deframer::Part::kPayload) {
        std::copy(read.begin(), read.end(), receiver.payload().begin() + payload_done);
        d.placed(receiver.payload().subspan(payload_done, read.size()));
        payload_done += read.size();
        ASSERT_EQ(d.octets_left(), left - read.size());
      } else {
        if (d.is_between_fpdus()) payload_done = 0;
        receiver.feed(read);
      }
    }
    ASSERT_EQ(receiver.ulpdus, ulpdus);
    ASSERT_TRUE(d.is_between_fpdus());
  }
}

TEST_P(DeframerMatrix, OctetsLeftIsExact) {
  const auto ulpdus = several_ulpdus();
  const Octets stream = frame_all(options(), ulpdus);
  Deframer d = make_deframer(options());
  size_t ends_at = 0;
  for (size_t at = 0; at < stream.size(); ++at) {
    Bytes input = Bytes(stream).subspan(at, 1);
    for (auto s = d.step(input); s.event != Event::kNeedMore; s = d.step(input)) {
      input = input.subspan(s.taken);
      ASSERT_NE(s.event, Event::kError);
      if (s.event == Event::kHeader) ends_at = at + 1 + d.octets_left();
      if (s.event == Event::kComplete) {
        EXPECT_EQ(ends_at, at + 1);
        EXPECT_EQ(d.octets_left(), 0u);
        ends_at = 0;
      }
    }
    if (ends_at != 0) {
      EXPECT_EQ(d.octets_left(), ends_at - at - 1);
    }
  }
}

TEST_P(DeframerMatrix, StepWithPlacesScatters) {
  const Octets ulpdu = make_ulpdu(1200, false);
  const Octets stream = frame_all(options(), {ulpdu, ulpdu});
  for (size_t chunk : {size_t{1}, size_t{7}, size_t{511}, stream.size()}) {
    Deframer d = make_deframer(options());
    Octets a(10, 0xa5), b(1, 0xa5), c(1182 - 11 + 5, 0xa5);
    const MutBytes places[] = {a, {}, b, c};
    int complete = 0;
    for (size_t at = 0; at < stream.size(); at += chunk) {
      Bytes input = Bytes(stream).subspan(at, std::min(chunk, stream.size() - at));
      for (;;) {
        const auto s = d.step(input, places);
        input = input.subspan(s.taken);
        ASSERT_NE(s.event, Event::kPayload);
        ASSERT_NE(s.event, Event::kError);
        if (s.event == Event::kNeedMore) break;
        if (s.event != Event::kComplete) continue;
        ++complete;
        Octets joined = a;
        joined.insert(joined.end(), b.begin(), b.end());
        joined.insert(joined.end(), c.begin(), c.end() - 5);
        EXPECT_TRUE(std::ranges::equal(joined, Bytes(ulpdu).subspan(18)));
        EXPECT_EQ(c.back(), 0xa5) << "written past the payload";
        for (Octets* place : {&a, &b, &c}) std::ranges::fill(*place, 0xa5);
      }
    }
    EXPECT_EQ(complete, 2);
  }
}

// Trap 33: a FIN is orderly between FPDUs only; at every other octet the stream was lost.
TEST_P(DeframerMatrix, Trap33EveryTruncation) {
  const auto ulpdus = several_ulpdus();
  const Octets stream = frame_all(options(), ulpdus);
  std::vector<size_t> boundaries{0};
  for (size_t n = 1; n <= ulpdus.size(); ++n)
    boundaries.push_back(
        frame_all(options(), {ulpdus.begin(), ulpdus.begin() + static_cast<ptrdiff_t>(n)}).size());
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    Receiver receiver(make_deframer(options()));
    receiver.feed(Bytes(stream).first(cut));
    const auto at = std::ranges::find(boundaries, cut);
    if (at != boundaries.end()) {
      ASSERT_EQ(receiver.deframer.end(), DeframerError::kNone) << "cut at " << cut;
      ASSERT_EQ(receiver.ulpdus.size(), static_cast<size_t>(at - boundaries.begin()));
    } else {
      ASSERT_EQ(receiver.deframer.end(), DeframerError::kTruncated) << "cut at " << cut;
      ASSERT_EQ(receiver.deframer.step({}).event, Event::kError);
    }
  }
}

// Trap 15 and 18: with CRC on no flipped bit survives, and nothing after it is taken.
TEST(Deframer, NoFlippedBitIsDelivered) {
  const std::vector<Octets> ulpdus{make_ulpdu(40, false), make_ulpdu(500, true)};
  for (const Options options : {Options{}, Options{.has_markers = true}}) {
    Octets stream = frame_all(options, ulpdus);
    for (size_t bit = 0; bit < stream.size() * 8; ++bit) {
      stream[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      Receiver receiver(make_deframer(options));
      receiver.feed(stream);
      ASSERT_NE(receiver.deframer.end(), DeframerError::kNone) << "bit " << bit;
      ASSERT_LT(receiver.ulpdus.size(), 2u);
      if (receiver.ulpdus.size() == 1) {
        ASSERT_EQ(receiver.ulpdus[0], ulpdus[0]);
      }
      stream[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    }
  }
}

TEST(Deframer, GoldenVectors) {
  for (const auto& v : vectors::read("mpa.txt")) {
    if (v.kind() != "fpdu" && v.kind() != "fpdu-with-markers") continue;
    SCOPED_TRACE(v.name());
    Receiver receiver(make_deframer({.has_markers = v.kind() != "fpdu"}));
    receiver.feed(v.bytes());
    ASSERT_EQ(receiver.ulpdus.size(), 1u);
    EXPECT_EQ(receiver.ulpdus[0], v.hex("ulpdu"));
  }
}

// Trap 14: with CRC off the word is there and may hold anything.
TEST(Deframer, Trap14CrcWordIsIgnoredWhenOff) {
  const std::vector<Octets> ulpdus{make_ulpdu(40, false), make_ulpdu(41, false)};
  Octets stream = frame_all({.has_crc = false}, ulpdus);
  const size_t first = fpdu_size(40);
  std::fill_n(stream.begin() + static_cast<ptrdiff_t>(first) - 4, 4, 0xee);
  Receiver receiver(make_deframer({.has_crc = false}));
  receiver.feed(stream);
  EXPECT_EQ(receiver.ulpdus, ulpdus);
}

TEST(Deframer, PadOctetsAreCoveredButNotJudged) {
  Octets fpdu = frame_all({}, {make_ulpdu(23, false)});
  fpdu[2 + 23] = 0x77;
  base::store_le32(fpdu.data() + fpdu.size() - 4, base::crc32c(Bytes(fpdu).first(fpdu.size() - 4)));
  Receiver receiver(make_deframer({}));
  receiver.feed(fpdu);
  EXPECT_EQ(receiver.ulpdus.size(), 1u);
}

DeframerError error_of(Deframer d, const Octets& stream) {
  Receiver receiver(d);
  receiver.feed(stream);
  EXPECT_TRUE(receiver.ulpdus.empty());
  return receiver.deframer.error();
}

// Trap 18: a length below the header of its opcode (CVE-2026-23242 was such a frame).
TEST(Deframer, Trap18LengthBelowTheHeader) {
  for (size_t n = 0; n < 18; ++n)
    EXPECT_EQ(error_of(make_deframer({}), frame_all({}, {make_ulpdu(n, false)})),
              DeframerError::kTooShort);
  for (size_t n = 0; n < 14; ++n)
    EXPECT_EQ(error_of(make_deframer({}), frame_all({}, {make_ulpdu(n, true)})),
              DeframerError::kTooShort);
  EXPECT_EQ(error_of(make_deframer({}), {0x00, 0x0d}), DeframerError::kTooShort)
      << "known from the length alone";
}

TEST(Deframer, LengthAboveTheMaximum) {
  EXPECT_EQ(error_of(make_deframer({}, 100), {0x00, 0x65}), DeframerError::kTooLong);
  Receiver receiver(make_deframer({}, 100));
  receiver.feed(frame_all({}, {make_ulpdu(100, false)}));
  EXPECT_EQ(receiver.ulpdus.size(), 1u);
  // 64769 with Markers: FPDUPTR could not say where the length field is.
  EXPECT_EQ(error_of(make_deframer({.has_markers = true}), {0, 0, 0, 0, 0xfd, 0x01}),
            DeframerError::kTooLong);
}

TEST(Deframer, BadCrc) {
  Octets fpdu = frame_all({}, {make_ulpdu(30, false)});
  fpdu.back() ^= 1;
  EXPECT_EQ(error_of(make_deframer({}), fpdu), DeframerError::kBadCrc);
}

// The OSC stack leaves the word out when CRC is off: the next FPDU's front is taken for it.
TEST(Deframer, MissingCrcWordIsNoticedAtTheNextFpdu) {
  Octets stream = frame_all({.has_crc = false}, {make_ulpdu(18, false), make_ulpdu(18, false)});
  stream.erase(stream.begin() + 20, stream.begin() + 24);
  Receiver receiver(make_deframer({.has_crc = false}));
  receiver.feed(stream);
  EXPECT_EQ(receiver.deframer.end(), DeframerError::kTruncated);
  EXPECT_EQ(receiver.ulpdus.size(), 1u);
}

TEST(Deframer, MarkerThatPointsElsewhere) {
  const Octets good = frame_all({.has_markers = true}, {make_ulpdu(700, false)});
  Octets first = good, second = good, reserved = good;
  first[3] = 4;
  EXPECT_EQ(error_of(make_deframer({.has_markers = true}), first), DeframerError::kBadMarker);
  second[512 + 3] ^= 4;
  EXPECT_EQ(error_of(make_deframer({.has_markers = true}), second), DeframerError::kBadMarker);
  // The reserved half is not judged; the CRC covers it.
  reserved[512] = 1;
  EXPECT_EQ(error_of(make_deframer({.has_markers = true}), reserved), DeframerError::kBadCrc);
}

TEST(Deframer, MarkersSentButNotAskedFor) {
  const Octets stream = frame_all({.has_markers = true}, {make_ulpdu(700, false)});
  EXPECT_EQ(error_of(make_deframer({}), stream), DeframerError::kTooShort);
}

// A Marker alone, between two FPDUs, is the front of the next one.
TEST(Deframer, Trap33EndAfterAMarkerIsATruncation) {
  for (size_t n = 1; n <= 4; ++n) {
    Receiver receiver(make_deframer({.has_markers = true}));
    receiver.feed(Octets(n, 0));
    EXPECT_EQ(receiver.deframer.end(), DeframerError::kTruncated);
  }
}

TEST(Deframer, ErrorsStay) {
  Deframer d = make_deframer({}, 100);
  const Octets bad{0xff, 0xff, 1, 2, 3};
  EXPECT_EQ(d.step(bad).event, Event::kError);
  EXPECT_EQ(d.step(bad).taken, 0u);
  EXPECT_EQ(d.want().octets, 0u);
  EXPECT_EQ(d.end(), DeframerError::kTooLong);
}

TEST(Deframer, WithoutARuleAllIsPayload) {
  const std::vector<Octets> ulpdus{{}, {1}, {1, 2, 3}};
  Receiver receiver(Deframer({}));
  receiver.feed(frame_all({}, ulpdus));
  EXPECT_EQ(receiver.ulpdus, ulpdus);
}

TEST(Deframer, LargestFpdus) {
  for (const bool has_markers : {false, true}) {
    const size_t n = has_markers ? MPA_MAX_ULPDU_WITH_MARKERS : MPA_MAX_ULPDU;
    const std::vector<Octets> ulpdus{make_ulpdu(n, true), make_ulpdu(n, false)};
    Receiver receiver(make_deframer({.has_markers = has_markers}));
    receiver.feed(frame_all({.has_markers = has_markers}, ulpdus));
    EXPECT_EQ(receiver.ulpdus, ulpdus);
  }
}

TEST(Deframer, TermCodes) {
  EXPECT_EQ(to_term_code(DeframerError::kTruncated), 1);
  EXPECT_EQ(to_term_code(DeframerError::kBadCrc), 2);
  EXPECT_EQ(to_term_code(DeframerError::kBadMarker), 3);
  EXPECT_EQ(to_term_code(DeframerError::kTooLong), 3);
}

}  // namespace
}  // namespace ddpsock::mpa
