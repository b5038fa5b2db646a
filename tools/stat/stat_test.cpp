// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>

#include "tools/stat/json.h"
#include "tools/stat/processes.h"
#include "tools/stat/snapshot.h"
#include "tools/stat/table.h"
#include "tools/stat/text.h"

namespace ddpsock::stat {
namespace {

using testing::Test;

engine::AddressView ipv4(uint8_t last, uint16_t port) {
  engine::AddressView a{.family = 4, .port = port, .host = {127, 0, 0, last}};
  return a;
}

TEST(Text, ShortNumbersTakeFiveCharactersAtMost) {
  EXPECT_EQ(in_short(0), "0");
  EXPECT_EQ(in_short(999), "999");
  EXPECT_EQ(in_short(1000), "0.98K");
  EXPECT_EQ(in_short(1024), "1.00K");
  EXPECT_EQ(in_short(10 << 10), "10.0K");
  EXPECT_EQ(in_short(1023ull << 10), "1.00M");
  EXPECT_EQ(in_short(7ull << 30), "7.00G");
  EXPECT_EQ(in_short(~0ull), "16.0E");
  for (int bit = 0; bit < 64; ++bit)
    for (const int64_t beside : {-1, 0, 1}) {
      const uint64_t value = (uint64_t{1} << bit) + static_cast<uint64_t>(beside);
      EXPECT_LE(in_short(value).size(), 5u) << value;
    }
}

TEST(Text, Addresses) {
  EXPECT_EQ(address_text(ipv4(1, 7000)), "127.0.0.1:7000");
  engine::AddressView six{.family = 6, .port = 80, .host = {}};
  six.host[15] = 1;
  EXPECT_EQ(address_text(six), "[::1]:80");
  six.host = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  EXPECT_EQ(address_text(six), "10.0.0.1:80");
  EXPECT_EQ(address_text({}), "?");
  six.family = 77;
  EXPECT_EQ(address_text(six), "?");
}

TEST(Text, NothingOfOthersMovesTheCursor) {
  EXPECT_EQ(printable("plain"), "plain");
  EXPECT_EQ(printable("\033[2Jx\n\t\r\177"), "?[2Jx????");
  EXPECT_EQ(printable("\302\233m"), "?m") << "CSI as one character";
  EXPECT_EQ(printable("\342\200\256"), "?") << "right to left override";
  EXPECT_EQ(printable("gr\303\274n"), "gr\303\274n");
  EXPECT_EQ(printable("\303"), "?");
  EXPECT_EQ(printable("\300\257\355\240\200\364\220\200\200"), "?????????");
}

TEST(Text, JsonStrings) {
  EXPECT_EQ(json_string("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(json_string("\033\n"), "\"\\u001b\\u000a\"");
  EXPECT_EQ(json_string("\377x"), "\"\\ufffdx\"");
  EXPECT_EQ(json_string(std::string_view("\0", 1)), "\"\\u0000\"");
  EXPECT_EQ(json_string("\303\274"), "\"\303\274\"");
}

TEST(Text, CutsByColumns) {
  EXPECT_EQ(cut("gr\303\274n", 3), "gr\303\274");
  EXPECT_EQ(columns_of("gr\303\274n"), 4u);
  EXPECT_EQ(cut("abc", 0), "");
}

TEST(Proc, Status) {
  Status s;
  EXPECT_TRUE(
      parse_status("Name:\tmy prog\nPid:\t900\nUid:\t1\t1000\t3\t4\nNSpid:\t900\t17\t2\n", s));
  EXPECT_EQ(s.program, "my prog");
  EXPECT_EQ(s.uid, 1000u);
  EXPECT_EQ(s.pid_inside, 2);
  for (const char* bad : {"", "\n\n", "Name:", "Name:\tx\nUid:\n", "Uid:\t1\t1\n", "Pid:\tx\n"}) {
    Status none;
    EXPECT_FALSE(parse_status(bad, none)) << bad;
  }
}

TEST(Proc, Maps) {
  const Maps maps = parse_maps(
      "7f00-7f01 r-xp 00000000 08:01 77 /usr/lib/libddpsock.so\n"
      "7f02-7f03 rw-s 00000000 00:01 4242 /memfd:ddpsock (deleted)\n");
  EXPECT_TRUE(maps.has_library);
  EXPECT_EQ(maps.arena.inode, 4242u);
  EXPECT_EQ(parse_maps("7f02-7f03 rw-s 0 00:01 4242 /memfd:ddpsock-stream (deleted)\n").arena,
            FileId{});
  EXPECT_EQ(parse_maps("/memfd:ddpsock (deleted)").arena, FileId{});
  EXPECT_FALSE(parse_maps("").has_library);
}

// A server and its client in two families, connected through shared memory.
class Pair : public Test {
 protected:
  Pair() {
    add_process(10, 1, "server");
    add_process(20, 2, "client");
    engine::ConnectionStatistics s;
    s.cookie = 5;
    s.holders = {10};
    s.opened_as = 8;
    s.state = engine::ConnectionState::kOpen;
    s.local = ipv4(1, 7000);
    s.remote = ipv4(1, 40000);
    s.is_in_memory = true;
    s.memory = "shared memory";
    s.verdict = "the client on this host is in DDPMODE";
    s.secret = {1, 2, 3};
    s.ring_read = 100;
    s.ring_written = 500;
    s.received.bytes = 2'000'000;
    auto c = s;
    c.holders = {20};
    c.is_initiator = true;
    std::swap(c.local, c.remote);
    c.ring_written = 150;
    c.ring_read = 480;
    c.received.bytes = 0;
    c.sent.bytes = 2'000'050;
    arenas[0].statistics.connections = {s};
    arenas[1].statistics.connections = {c};
  }
  void add_process(int pid, ino_t arena, const char* program) {
    Process& p = scan.processes.emplace_back();
    p.pid = p.pid_inside = pid;
    p.program = program;
    p.arena = {1, arena};
    ArenaContents& a = arenas.emplace_back();
    a.id = p.arena;
    a.statistics.processes = {{.pid = pid, .plain_connections = 0, .last_plain_reason = {}}};
  }
  Snapshot joined() { return join(scan, arenas); }
  static std::string text_of(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }

  Scan scan;
  std::vector<ArenaContents> arenas;
};

TEST_F(Pair, RingsAreMeasuredWithBothEnds) {
  const Snapshot s = joined();
  ASSERT_EQ(s.connections.size(), 2u);
  EXPECT_EQ(s.connections[0].ring_to_read, 50u);
  EXPECT_EQ(s.connections[0].ring_to_peer, 20u);
  EXPECT_EQ(s.connections[1].ring_to_read, 20u);
  EXPECT_EQ(s.connections[1].ring_to_peer, 50u);
}

TEST_F(Pair, RingsAreNotKnownWithoutThePeer) {
  arenas[1].statistics.connections.clear();
  EXPECT_EQ(joined().connections.at(0).ring_to_read, std::nullopt);
}

TEST_F(Pair, RingsThatCannotBeAreNotShown) {
  arenas[1].statistics.connections[0].ring_written = uint64_t{1} << 40;
  EXPECT_EQ(joined().connections.at(0).ring_to_read, std::nullopt);
  // Read between the two looks.
  arenas[1].statistics.connections[0].ring_written = 90;
  EXPECT_EQ(joined().connections.at(0).ring_to_read, 0u);
}

TEST_F(Pair, WhoIsNotThereHoldsNothing) {
  scan.processes.erase(scan.processes.begin());
  const Snapshot s = joined();
  ASSERT_EQ(s.connections.size(), 1u);
  EXPECT_EQ(s.connections[0].program, "client");
}

TEST_F(Pair, WhoOnlyLooksIsNotShown) {
  Process& onlooker = scan.processes.emplace_back();
  onlooker.pid = onlooker.pid_inside = 30;
  onlooker.arena = {1, 1};
  EXPECT_EQ(joined().processes.size(), 2u);
  onlooker.is_mapped = true;
  EXPECT_EQ(joined().processes.size(), 3u);
}

TEST_F(Pair, ObstaclesAreNamed) {
  arenas[0].obstacle = "cannot be read";
  arenas[0].statistics = {};
  arenas.erase(arenas.begin() + 1);
  const Snapshot s = joined();
  ASSERT_EQ(s.processes.size(), 2u);
  EXPECT_EQ(s.processes[0].obstacle, "cannot be read");
  EXPECT_EQ(s.processes[1].obstacle, "has closed the descriptor of its statistics");
  EXPECT_NE(text_of(table(s, nullptr, 80, kUnlimited)).find("server 10: cannot be read"),
            std::string::npos);
}

TEST_F(Pair, AForkedHolderIsTheSameConnection) {
  Process& child = scan.processes.emplace_back();
  child.pid = child.pid_inside = 11;
  child.arena = {1, 1};
  arenas[0].statistics.processes.push_back(
      {.pid = 11, .plain_connections = 0, .last_plain_reason = {}});
  arenas[0].statistics.connections[0].holders = {10, 11, 999};
  const Snapshot s = joined();
  ASSERT_EQ(s.connections.size(), 2u);
  EXPECT_EQ(s.connections[0].holders, (std::vector{10, 11}));
}

TEST_F(Pair, FiltersByPidProgramAndPort) {
  for (const char* wanted : {"10", "server"}) {
    Snapshot s = joined();
    filter(s, {wanted});
    ASSERT_EQ(s.connections.size(), 1u) << wanted;
    EXPECT_EQ(s.connections[0].pid, 10);
    EXPECT_EQ(s.processes.size(), 1u);
  }
  Snapshot s = joined();
  filter(s, {":40000"});
  EXPECT_EQ(s.connections.size(), 2u);
  filter(s, {"1"});
  EXPECT_TRUE(s.connections.empty() && s.processes.empty());
}

TEST_F(Pair, TheTableFitsAnyWidth) {
  const Snapshot s = joined();
  for (size_t width = 1; width < 220; ++width)
    for (const std::string& line : table(s, nullptr, width, kUnlimited))
      ASSERT_LE(columns_of(line), width) << line;
  const std::string narrow = text_of(table(s, nullptr, 80, kUnlimited));
  for (const char* title : {"PROGRAM", "PID", "LOCAL", "PEER", "ENGINE", "SENT", "RECV", "RING"})
    EXPECT_NE(narrow.find(title), std::string::npos) << title;
  EXPECT_NE(narrow.find("server   10 :7000"), std::string::npos) << narrow;
  const std::string wide = text_of(table(s, nullptr, kUnlimited, kUnlimited));
  for (const char* title : {"MODE", "FPDUS", "COPIED", "CALLS", "WAITS", "SPINS", "BELLS", "WHY"})
    EXPECT_NE(wide.find(title), std::string::npos) << title;
  EXPECT_NE(wide.find("the client on this host is in DDPMODE"), std::string::npos);
}

TEST_F(Pair, TheTableFitsAnyHeight) {
  for (size_t height = 1; height < 8; ++height)
    ASSERT_LE(table(joined(), nullptr, 80, height).size(), height);
  EXPECT_EQ(table(joined(), nullptr, 80, 3).back(), "... and 2 more lines");
}

TEST_F(Pair, AFailureIsToldAlsoWhereThereIsLittleRoom) {
  arenas[0].statistics.connections[0].failure = "the peer\033[2J wrote nonsense";
  EXPECT_NE(text_of(table(joined(), nullptr, 80, kUnlimited)).find("failed: the peer?[2J wrote"),
            std::string::npos);
}

TEST_F(Pair, RatesAreOfTheSameConnectionOnly) {
  Snapshot before = joined();
  before.at = Time{1'000'000'000};
  arenas[0].statistics.connections[0].received.bytes += 400;
  arenas[1].statistics.connections[0].cookie = 6;
  Snapshot now = joined();
  now.at = Time{3'000'000'000};
  const auto lines = table(now, &before, 80, kUnlimited);
  EXPECT_NE(lines[1].find("RECV/s"), std::string::npos);
  EXPECT_NE(lines[2].find(" 200 "), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find(" - "), std::string::npos) << lines[3];
}

TEST_F(Pair, DetailsSayEverything) {
  const std::string text = text_of(details(joined(), nullptr));
  for (const char* part :
       {"server 10, descriptor 8: 127.0.0.1:7000 <- 127.0.0.1:40000", "shm; shared memory",
        "50 bytes for this end to read, 20 for the peer", "bells rung", "2000050"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(Pair, JsonEscapesWhatProgramsAreCalled) {
  scan.processes[0].program = "a\"b\n";
  const std::string json = to_json(joined());
  EXPECT_NE(json.find(R"("program":"a\"b\u000a")"), std::string::npos) << json;
  EXPECT_EQ(std::ranges::count(json, '\n'), 0);
}

TEST_F(Pair, MessagesAreTold) {
  engine::ConnectionStatistics& c = arenas[0].statistics.connections[0];
  c.is_message = true;
  c.is_in_memory = false;
  c.engine = "shm";
  c.progress = "ep\033oll";
  c.sends = {.posted = 7, .completed = 5, .failed = 1};
  c.terminate = 1u << 24 | 0x010205;
  const std::string text = text_of(details(joined(), nullptr));
  for (const char* part : {"mode      message", "engine    shm; ", "progress  ep?oll",
                           "Terminate layer 1, type 2, code 5", "2 connections (2 shm, 0 user)"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const std::string json = to_json(joined());
  for (const char* part :
       {R"("mode":"message","engine":"shm")", R"("waits":null)", R"("messages":null)",
        R"("sends":{"posted":7,"completed":5,"outstanding":2,"failed":1})",
        R"("terminate":16843269)"})
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
  // What was half written must not look like 2^64 requests.
  c.sends = {.posted = 1, .completed = 2, .failed = 0};
  EXPECT_NE(to_json(joined()).find(R"("outstanding":0)"), std::string::npos);
  const auto lines = table(joined(), nullptr, kUnlimited, kUnlimited);
  EXPECT_NE(lines[2].find(" message shm "), std::string::npos) << lines[2];
}

TEST_F(Pair, PlainConnectionsAreTold) {
  arenas[0].statistics.processes[0].plain_connections = 3;
  arenas[0].statistics.processes[0].last_plain_reason = "nobody there";
  EXPECT_NE(text_of(table(joined(), nullptr, 80, kUnlimited))
                .find("server 10: 3 plain so far, the last: nobody there"),
            std::string::npos);
}

TEST(Table, NothingAtAll) {
  EXPECT_EQ(table({}, nullptr, 80, kUnlimited),
            std::vector<std::string>{"no process of this user runs with ddpsock"});
  EXPECT_EQ(to_json({}), R"({"time":0.000,"processes":[],"connections":[],"hidden":0})");
}

}  // namespace
}  // namespace ddpsock::stat
