// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/startup_frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tests/vectors/vectors.h"

namespace ddpsock::mpa {
namespace {

using Octets = std::vector<uint8_t>;

FrameKind kind_of(const vectors::Vector& v) {
  return v.kind() == "request" ? FrameKind::kRequest : FrameKind::kReply;
}

std::vector<vectors::Vector> startup_vectors(bool is_error) {
  std::vector<vectors::Vector> out;
  for (auto& v : vectors::read("mpa.txt"))
    if ((v.kind() == "request" || v.kind() == "reply") && v.has("error") == is_error)
      out.push_back(std::move(v));
  return out;
}

Enhanced enhanced_of(const vectors::Vector& v) {
  return {.is_peer_to_peer = v.flag("peer-to-peer"),
          .rtr = {v.flag("rtr-send"), v.flag("rtr-write"), v.flag("rtr-read")},
          .ird = static_cast<uint16_t>(v.number("ird")),
          .ord = static_cast<uint16_t>(v.number("ord"))};
}

// Traps 1 and 5: key, flags, revision, PD_Length that counts the enhanced words, their bits.
TEST(StartupFrame, Trap1And5GoldenVectorsDecode) {
  const auto all = startup_vectors(false);
  EXPECT_GE(all.size(), 7u);
  for (const auto& v : all) {
    SCOPED_TRACE(v.name());
    const Octets wire = v.bytes();
    const auto view = StartupView::over(wire, kind_of(v));
    ASSERT_TRUE(view);
    EXPECT_EQ(view->size(), wire.size());
    const auto frame = StartupFrame::from(*view);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->revision, v.number("revision"));
    EXPECT_EQ(frame->needs_markers, v.flag("markers"));
    EXPECT_EQ(frame->wants_crc, v.flag("crc-wanted"));
    EXPECT_EQ(frame->is_rejected, v.flag("reject"));
    ASSERT_EQ(frame->enhanced.has_value(), v.flag("enhanced"));
    if (frame->enhanced) {
      EXPECT_EQ(*frame->enhanced, enhanced_of(v));
    }
    EXPECT_TRUE(std::ranges::equal(frame->private_data, v.hex("private-data")));
  }
}

TEST(StartupFrame, GoldenVectorsEncode) {
  for (const auto& v : startup_vectors(false)) {
    SCOPED_TRACE(v.name());
    const Octets private_data = v.hex("private-data");
    StartupFrame frame;
    frame.kind = kind_of(v);
    frame.revision = static_cast<uint8_t>(v.number("revision"));
    frame.needs_markers = v.flag("markers");
    frame.wants_crc = v.flag("crc-wanted");
    frame.is_rejected = v.flag("reject");
    if (v.flag("enhanced")) frame.enhanced = enhanced_of(v);
    frame.private_data = private_data;

    Octets wire(startup_size(frame) + 1, 0xa5);
    ASSERT_EQ(write_startup(frame, wire), startup_size(frame));
    EXPECT_EQ(wire.back(), 0xa5);
    wire.pop_back();
    EXPECT_EQ(wire, v.bytes());
    for (size_t room = 0; room < wire.size(); ++room) {
      Octets short_buffer(room, 0xa5);
      EXPECT_EQ(write_startup(frame, short_buffer).error(), StartupError::kShortBuffer);
      EXPECT_TRUE(std::ranges::all_of(short_buffer, [](uint8_t octet) { return octet == 0xa5; }));
    }
  }
}

TEST(StartupFrame, EveryTruncation) {
  for (const auto& v : startup_vectors(false)) {
    const Octets wire = v.bytes();
    for (size_t n = 0; n < wire.size(); ++n)
      EXPECT_EQ(StartupView::over(Bytes(wire).first(n), kind_of(v)).error(),
                StartupError::kTruncated);
  }
}

StartupError error_of(const Octets& wire, FrameKind kind) {
  const auto view = StartupView::over(wire, kind);
  if (!view) return view.error();
  const auto frame = StartupFrame::from(*view);
  EXPECT_FALSE(frame.has_value());
  return frame ? StartupError::kClosed : frame.error();
}

TEST(StartupFrame, MalformedVectors) {
  for (const auto& v : startup_vectors(true)) {
    SCOPED_TRACE(v.name());
    const StartupError error = error_of(v.bytes(), kind_of(v));
    EXPECT_TRUE(error == StartupError::kPrivateDataTooLong ||
                error == StartupError::kEnhancedTooShort);
    StartupReader reader(kind_of(v));
    EXPECT_EQ(reader.take(v.bytes()).error, error);
  }
}

TEST(StartupFrame, EveryWrongKeyOctet) {
  const Octets good = vectors::find("mpa.txt", "request-revision-1").bytes();
  for (size_t i = 0; i < MPA_KEY_SIZE; ++i) {
    Octets bad = good;
    bad[i] ^= 0x20;
    EXPECT_EQ(error_of(bad, FrameKind::kRequest), StartupError::kNotMpa);
    StartupReader reader(FrameKind::kRequest);
    const auto taken = reader.take(bad);
    EXPECT_EQ(taken.error, StartupError::kNotMpa);
    EXPECT_EQ(taken.octets, i) << "the octet that differs is not taken";
  }
}

TEST(StartupFrame, AnInitiatorThatMeetsAnInitiator) {
  const Octets request = vectors::find("mpa.txt", "request-revision-1").bytes();
  EXPECT_EQ(error_of(request, FrameKind::kReply), StartupError::kNotMpa);
}

TEST(StartupFrame, UnknownRevision) {
  for (unsigned revision = 3; revision < 256; ++revision) {
    Octets wire = vectors::find("mpa.txt", "request-revision-1").bytes();
    wire[MPA_REVISION_OFFSET] = static_cast<uint8_t>(revision);
    EXPECT_EQ(error_of(wire, FrameKind::kRequest), StartupError::kUnknownRevision);
  }
}

// Reserved bits: not looked at (RFC 5044 section 7.1.1). S is one of them below revision 2, and R
// in a Request.
TEST(StartupFrame, ReservedBitsAreIgnored) {
  Octets wire = vectors::find("mpa.txt", "request-revision-1").bytes();
  wire[MPA_FLAGS_OFFSET] |= 0x0f | MPA_FLAG_ENHANCED | MPA_FLAG_REJECT;
  const auto frame = StartupFrame::from(*StartupView::over(wire, FrameKind::kRequest));
  ASSERT_TRUE(frame);
  EXPECT_FALSE(frame->enhanced);
  EXPECT_FALSE(frame->is_rejected);
  EXPECT_EQ(frame->private_data.size(), 3u);
}

// Trap 1: 512 by the RFC, the enhanced octets included.
TEST(StartupFrame, Trap1PrivateDataLimits) {
  const Octets data(513, 0x11);
  Octets wire(600, 0xa5);
  StartupFrame frame{.revision = 1, .private_data = Bytes(data).first(512)};
  EXPECT_EQ(write_startup(frame, wire), 532u);
  frame.private_data = data;
  EXPECT_EQ(write_startup(frame, wire).error(), StartupError::kPrivateDataTooLong);
  frame.revision = 2;
  frame.enhanced = Enhanced{};
  frame.private_data = Bytes(data).first(508);
  EXPECT_EQ(write_startup(frame, wire), 532u);
  frame.private_data = Bytes(data).first(509);
  EXPECT_EQ(write_startup(frame, wire).error(), StartupError::kPrivateDataTooLong);
  EXPECT_FALSE(PrivateData::from(data));
  EXPECT_LE(MPA_PRACTICAL_PRIVATE_DATA + MPA_ENHANCED_SIZE, 255) << "siw keeps it in eight bits";
}

// Trap 2: frames come in any number of pieces, and what follows them is not taken.
TEST(StartupReader, Trap2EveryFragmentation) {
  for (const auto& v : startup_vectors(false)) {
    Octets stream = v.bytes();
    const size_t size = stream.size();
    stream.insert(stream.end(), 40, 0xee);
    for (size_t chunk = 1; chunk <= stream.size(); ++chunk) {
      StartupReader reader(kind_of(v));
      size_t at = 0;
      EXPECT_TRUE(reader.is_empty());
      while (!reader.is_complete()) {
        const auto taken =
            reader.take(Bytes(stream).subspan(at, std::min(chunk, stream.size() - at)));
        ASSERT_FALSE(taken.error);
        ASSERT_GT(taken.octets, 0u);
        at += taken.octets;
      }
      ASSERT_EQ(at, size);
      ASSERT_TRUE(std::ranges::equal(reader.frame().private_data, v.hex("private-data")));
      ASSERT_EQ(reader.take(Bytes(stream).subspan(at)).octets, 0u);
    }
  }
}

TEST(Sniff, TellsMpaFromOthersAtTheFirstOctetThatDiffers) {
  const std::string_view key = MPA_REQUEST_KEY;
  const Octets octets(key.begin(), key.end());
  for (size_t n = 0; n < octets.size(); ++n) {
    EXPECT_EQ(sniff_request(Bytes(octets).first(n)), Sniff::kNeedMore);
    Octets other(octets.begin(), octets.begin() + static_cast<ptrdiff_t>(n));
    other.push_back(static_cast<uint8_t>(octets[n] + 1));
    EXPECT_EQ(sniff_request(other), Sniff::kNotMpa);
  }
  EXPECT_EQ(sniff_request(octets), Sniff::kMpaRequest);
  for (std::string_view text :
       {"GET / HTTP/1.1\r\n", "*1\r\n$4\r\nPING\r\n", "M", "MPA ID Rep Frame"}) {
    const auto expected = text == "M" ? Sniff::kNeedMore : Sniff::kNotMpa;
    EXPECT_EQ(sniff_request(Octets(text.begin(), text.end())), expected) << text;
  }
}

}  // namespace
}  // namespace ddpsock::mpa
