// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What two siw hosts said to each other, read by our readers in any segmentation, and said again by
// our queue pair at either end.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <random>

#include "base/bytes.h"
#include "tests/interop/replay/capture.h"
#include "tests/interop/replay/operation.h"
#include "tests/interop/replay/player.h"

namespace ddpsock::interop {
namespace {

constexpr uint16_t kServerPort = 7174;
const std::string kCapture = std::string(DDPSOCK_CAPTURES) + "/siw-rping-4000";

std::vector<Segment> connection() {
  const auto segments = read_connection(kCapture + ".pcap", kServerPort);
  if (!segments) ADD_FAILURE() << segments.error();
  return segments.value_or(std::vector<Segment>{});
}

std::vector<std::string> expected_lines() {
  std::ifstream file(kCapture + ".txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  EXPECT_GT(lines.size(), 2u);
  return lines;
}

// Cuts `stream` into pieces of the sizes that `size` says.
std::vector<Bytes> cut(Bytes stream, const std::function<size_t()>& size) {
  std::vector<Bytes> pieces;
  while (!stream.empty()) {
    const size_t n = std::min(std::max<size_t>(size(), 1), stream.size());
    pieces.push_back(stream.first(n));
    stream = stream.subspan(n);
  }
  return pieces;
}

void expect_operations(const std::vector<Bytes>& client, const std::vector<Bytes>& server) {
  std::vector<std::string> lines;
  for (const Side side : {Side::kClient, Side::kServer}) {
    DirectionReader reader(side, false);
    for (const Bytes& piece : side == Side::kClient ? client : server) reader.feed(piece);
    EXPECT_EQ(reader.error(), "");
    EXPECT_TRUE(reader.is_between_fpdus());
    lines.insert(lines.end(), reader.lines().begin(), reader.lines().end());
  }
  EXPECT_EQ(lines, expected_lines());
}

TEST(Replay, GivesTheOperationsThatTsharkSeesInAnySegmentation) {
  const std::vector<Segment> segments = connection();
  const Octets client = stream_of(segments, Side::kClient);
  const Octets server = stream_of(segments, Side::kServer);
  std::vector<Bytes> as_captured[2];
  for (const Segment& s : segments) as_captured[s.from == Side::kServer].push_back(s.octets);
  {
    SCOPED_TRACE("as captured");
    expect_operations(as_captured[0], as_captured[1]);
  }
  std::mt19937 random(20261121);
  const std::pair<const char*, std::function<size_t()>> kinds[] = {
      {"octet by octet", [] { return size_t{1}; }},
      {"at once", [] { return ~size_t{0}; }},
      {"small pieces", [&] { return size_t{random() % 40}; }},
      {"large pieces", [&] { return size_t{random() % 6000}; }},
  };
  for (const auto& [name, size] : kinds) {
    SCOPED_TRACE(name);
    expect_operations(cut(client, size), cut(server, size));
  }
}

// A capture that cannot be judged is an error and not an empty list.
TEST(Replay, ABrokenCaptureIsRefused) {
  EXPECT_EQ(read_connection(kCapture + ".txt", kServerPort).error(),
            "not a pcap file of Ethernet frames");
  EXPECT_EQ(read_connection("nowhere.pcap", kServerPort).error(), "cannot be opened");
  EXPECT_EQ(read_connection(kCapture + ".pcap", 1).error(), "no connection to that port");
}

// --- The capture reader against TCP as it can be.

// One record: `text` at relative sequence number `at` of a direction that began near the wrap.
Octets record(bool is_to_server, uint32_t at, uint8_t flags, const std::string& text) {
  constexpr size_t kRecord = 16, kIp = kRecord + 14, kTcp = kIp + 20, kText = kTcp + 20;
  Octets whole(kText + text.size(), 0);
  const auto size = static_cast<uint32_t>(whole.size() - kRecord);
  base::store_le32(&whole[8], size);
  base::store_le32(&whole[12], size);
  base::store_be16(&whole[kIp - 2], 0x0800);
  whole[kIp] = 0x45;
  base::store_be16(&whole[kIp + 2], static_cast<uint16_t>(size - 14));
  whole[kIp + 9] = 6;
  base::store_be16(&whole[kTcp], is_to_server ? 4000 : kServerPort);
  base::store_be16(&whole[kTcp + 2], is_to_server ? kServerPort : 4000);
  base::store_be32(&whole[kTcp + 4], 0xfffffffe + at);
  whole[kTcp + 12] = 0x50;
  whole[kTcp + 13] = flags;
  std::copy(text.begin(), text.end(), whole.begin() + kText);
  return whole;
}

Result<std::vector<Segment>, std::string> read_records(const std::vector<Octets>& records) {
  Octets file(24, 0);
  base::store_le32(&file[0], 0xa1b2c3d4);
  base::store_le32(&file[20], 1);
  for (const Octets& r : records) file.insert(file.end(), r.begin(), r.end());
  const std::string path = testing::TempDir() + "/interop_replay.pcap";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  auto segments = read_connection(path, kServerPort);
  std::remove(path.c_str());
  return segments;
}

TEST(Capture, PutsSegmentsInOrderAndDropsWhatWasKnown) {
  constexpr uint8_t kSyn = 2, kAck = 16, kFinAck = 17;
  std::vector<Octets> records = {record(true, 0, kSyn, ""),        record(false, 0, kSyn, ""),
                                 record(true, 1, kAck, "one "),    record(true, 12, kAck, "four"),
                                 record(true, 3, kAck, "e two t"), record(true, 1, kAck, "one "),
                                 record(true, 16, kFinAck, "")};
  EXPECT_EQ(read_records(records).error(), "octets are missing");
  records.push_back(record(true, 9, kAck, "thr"));
  const auto segments = read_records(records);
  ASSERT_TRUE(segments) << segments.error();
  const Octets stream = stream_of(*segments, Side::kClient);
  EXPECT_EQ(std::string(stream.begin(), stream.end()), "one two thrfour");
  EXPECT_EQ(segments->size(), 3u);
  EXPECT_TRUE(segments->back().is_fin);
}

// --- A queue pair in the place of one end.

Direction direction_of(const std::vector<Segment>& segments, Side side) {
  const Octets whole = stream_of(segments, side);
  DirectionReader reader(side, false);
  reader.feed(whole);
  const size_t start = reader.startup_size();
  Direction d{{whole.begin() + static_cast<ptrdiff_t>(start), whole.end()}, reader.operations()};
  for (Operation& o : d.operations) o.at -= start;
  return d;
}

// Which operations of a side were complete once `octets` of its stream had passed.
size_t complete_at(const Direction& d, size_t startup, size_t octets) {
  size_t n = 0;
  while (n < d.operations.size()) {
    const bool is_final = n + 1 == d.operations.size();
    const size_t end = is_final ? d.stream.size() : d.operations[n + 1].at;
    if (startup + end > octets) break;
    ++n;
  }
  return n;
}

std::vector<Octets> sends_in(const Direction& d) {
  std::vector<Octets> sends;
  for (const Operation& o : d.operations)
    if (o.opcode == rdmap::Opcode::kSend) sends.push_back(o.payload);
  return sends;
}

size_t messages_of_the_ulp(const Direction& d) {
  size_t n = 0;
  for (const Operation& o : d.operations)
    n += o.is_last() && o.opcode != rdmap::Opcode::kReadResponse;
  return n;
}

class ReplayEnd : public testing::TestWithParam<std::tuple<Side, size_t>> {};

TEST_P(ReplayEnd, AQueuePairInItsPlaceCompletesAndSaysTheSame) {
  const auto [side, piece] = GetParam();
  const Side other = side == Side::kClient ? Side::kServer : Side::kClient;
  const std::vector<Segment> segments = connection();
  const Direction ours = direction_of(segments, side);
  const Direction theirs = direction_of(segments, other);
  Player player(side == Side::kClient, 1, ours, theirs);

  size_t passed[2] = {};
  size_t played[2] = {};
  for (const Segment& s : segments) {
    const bool is_ours = s.from == side;
    passed[is_ours] += s.octets.size();
    const Direction& d = is_ours ? ours : theirs;
    const size_t startup = stream_of(segments, s.from).size() - d.stream.size();
    for (const size_t n = complete_at(d, startup, passed[is_ours]); played[is_ours] < n;
         ++played[is_ours]) {
      if (is_ours)
        player.note_ours();
      else
        player.feed_theirs(piece);
    }
    if (s.is_fin && is_ours) player.end_ours();
    if (s.is_fin && !is_ours) player.end_theirs();
  }
  EXPECT_EQ(player.said(), ours.stream) << "every octet as siw said it";
  EXPECT_EQ(player.heard(), sends_in(theirs));
  EXPECT_EQ(player.completed(), messages_of_the_ulp(ours));
  EXPECT_TRUE(player.has_all_memory_right());
  EXPECT_EQ(player.state(), rdmap::QpState::kEnded);
  EXPECT_EQ(player.end_reason(), rdmap::EndReason::kOrderly);
}

INSTANTIATE_TEST_SUITE_P(Ends, ReplayEnd,
                         testing::Combine(testing::Values(Side::kClient, Side::kServer),
                                          testing::Values(1, 3, 100, 1 << 20)));

}  // namespace
}  // namespace ddpsock::interop
