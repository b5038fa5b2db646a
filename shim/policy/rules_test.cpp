// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/rules.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>

#include "shim/policy/rules_toml.h"

namespace ddpsock::shim {
namespace {

constexpr Program kRedis{"redis-server", "/usr/bin/redis-server"};

Address at(std::string_view text, uint16_t port) {
  Address a = parse_address(text).value();
  a.port = port;
  return a;
}

TEST(Address, MappedAddressEqualsItsV4) {
  EXPECT_EQ(at("::ffff:10.1.2.3", 5), at("10.1.2.3", 5));
  EXPECT_TRUE(at("::ffff:127.0.0.2", 0).is_loopback());
  EXPECT_TRUE(at("0.0.0.0", 0).is_wildcard());
  EXPECT_TRUE(at("::", 0).is_wildcard());
  EXPECT_FALSE(at("::1", 0).is_wildcard());
}

TEST(Address, ReadRefusesEveryShortLength) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  for (socklen_t n = 0; n < sizeof in; ++n)
    EXPECT_FALSE(read_address(reinterpret_cast<sockaddr*>(&in), n)) << n;
  EXPECT_TRUE(read_address(reinterpret_cast<sockaddr*>(&in), sizeof in));
  EXPECT_FALSE(read_address(nullptr, sizeof in));
}

TEST(Prefix, MatchesBitsOfItsOwnFamilyOnly) {
  const Prefix ten = parse_prefix("10.0.0.0/9").value();
  EXPECT_TRUE(ten.has(at("10.127.0.1", 1)));
  EXPECT_FALSE(ten.has(at("10.128.0.1", 1)));
  EXPECT_TRUE(ten.has(at("::ffff:10.1.1.1", 1)));
  EXPECT_TRUE(parse_prefix("::ffff:10.0.0.0/104")->has(at("10.9.9.9", 1)));
  EXPECT_TRUE(parse_prefix("::/0")->has(at("fe80::1", 1)));
  EXPECT_FALSE(parse_prefix("::/0")->has(at("10.0.0.1", 1)));
  EXPECT_TRUE(parse_prefix("0.0.0.0/0")->has(at("10.0.0.1", 1)));
}

TEST(Prefix, RefusesWhatIsNotOne) {
  for (const char* bad : {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "10.0.0/8", "::/129",
                          "::ffff:1.2.3.4/95", "1.2.3.4/-1", "[::1]", "a.b.c.d"})
    EXPECT_FALSE(parse_prefix(bad)) << bad;
}

TEST(Glob, NamesByLastComponentOrWholePath) {
  EXPECT_TRUE(is_named_by(kRedis, "redis-*"));
  EXPECT_TRUE(is_named_by(kRedis, "/usr/*/redis-server"));
  EXPECT_FALSE(is_named_by(kRedis, "/usr/*"));
  EXPECT_TRUE(is_named_by(kRedis, "*"));
  EXPECT_TRUE(is_named_by(kRedis, "*s*r??r"));
  EXPECT_FALSE(is_named_by(kRedis, "redis"));
  EXPECT_FALSE(is_named_by({"", ""}, "*"));
}

TEST(Glob, IsNotExponential) {
  const std::string text(4096, 'a'), glob = "a*a*a*a*a*a*a*a*a*a*a*a*b";
  EXPECT_FALSE(is_named_by({text, ""}, glob));
}

RuleSet parse(std::string_view text, const Program& program = kRedis) {
  RuleSet set;
  const auto parsed = parse_rules(text, program, set);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().expected;
  return set;
}

TEST(Rules, FirstMatchWinsAndKeepsItsLine) {
  const RuleSet set = parse(
      "ddp1;r3,redis-*,s,10.0.0.0/8,6379-6390,require,0;r9,*,*,*,6379,off,-;r12,nginx,*,*,*,off,-"
      ";d,prefer,-");
  const Decision first = set.decide(Role::kServer, at("10.0.0.1", 6380));
  EXPECT_EQ(first.action, Action::kRequire);
  EXPECT_FALSE(first.wants_crc);
  EXPECT_EQ(first.line, 3u);
  EXPECT_EQ(set.decide(Role::kClient, at("10.0.0.1", 6379)).line, 9u);
  const Decision other = set.decide(Role::kClient, at("10.0.0.1", 6380));
  EXPECT_EQ(other.action, Action::kPrefer);
  EXPECT_EQ(other.line, 0u);
  EXPECT_TRUE(other.wants_crc);
}

TEST(Rules, CrcDefaultIsForRulesThatDoNotSay) {
  RuleSet set = parse("ddp1;r1,*,c,*,*,prefer,1;d,prefer,-");
  set.set_default_crc(false);
  EXPECT_TRUE(set.decide(Role::kClient, at("::1", 1)).wants_crc);
  EXPECT_FALSE(set.decide(Role::kServer, at("::1", 1)).wants_crc);
}

TEST(Rules, OneAddressOffKeepsAWildcardListenerOut) {
  const RuleSet set = parse("ddp1;r1,*,s,10.0.0.0/8,*,off,-;d,prefer,-");
  EXPECT_TRUE(set.is_off_for_some(at("0.0.0.0", 80)));
  EXPECT_TRUE(set.is_off_for_some(at("::", 80)));
  EXPECT_FALSE(set.is_off_for_some(at("127.0.0.1", 80)));
  EXPECT_FALSE(parse("ddp1;r1,*,s,*,80,prefer,-;d,off,-").is_off_for_some(at("::", 80)));
  EXPECT_TRUE(parse("ddp1;r1,*,s,*,80,prefer,-;d,off,-").is_off_for_some(at("::", 81)));
}

TEST(Rules, KnowsWhetherAnythingCouldBeChosen) {
  EXPECT_FALSE(RuleSet().can_choose());
  EXPECT_FALSE(parse("ddp1;d,off,-").can_choose());
  EXPECT_FALSE(parse("ddp1;r1,nginx,*,*,*,require,-;d,off,-").can_choose());
  EXPECT_TRUE(parse("ddp1;r1,redis-server,*,*,*,require,-;d,off,-").can_choose());
}

TEST(RulesText, EveryTruncationIsRefused) {
  const std::string whole = "ddp1;r3,redis-%2A,s,10.0.0.0/8,6379-6390,require,0;d,prefer,-";
  for (size_t n = 0; n < whole.size(); ++n) {
    RuleSet set;
    EXPECT_FALSE(parse_rules(std::string_view(whole).substr(0, n), kRedis, set)) << n;
  }
}

TEST(RulesText, RefusesEachMalformedField) {
  for (const char* bad :
       {"", "ddp2;d,off,-", "ddp1", "ddp1;d,off,-;d,off,-", "ddp1;x,off,-", "ddp1;d,on,-",
        "ddp1;d,off,2", "ddp1;d,off", "ddp1;rx,*,*,*,*,off,-;d,off,-",
        "ddp1;r1,,*,*,*,off,-;d,off,-", "ddp1;r1,%4,*,*,*,off,-;d,off,-",
        "ddp1;r1,*,x,*,*,off,-;d,off,-", "ddp1;r1,*,*,10/8,*,off,-;d,off,-",
        "ddp1;r1,*,*,*,9-8,off,-;d,off,-", "ddp1;r1,*,*,*,65536,off,-;d,off,-",
        "ddp1;r1,*,*,*,1-,off,-;d,off,-", "ddp1;;d,off,-", "ddp1;r1,*,*,*,*,off,-,x;d,off,-"}) {
    RuleSet set;
    EXPECT_FALSE(parse_rules(bad, kRedis, set)) << bad;
  }
}

TEST(RulesText, BoundsLengthRulesAndProgram) {
  RuleSet set;
  EXPECT_FALSE(parse_rules("ddp1;d,off,-" + std::string(kMaxRulesText, '0'), kRedis, set));
  const std::string glob(kMaxProgramGlob + 1, 'a');
  EXPECT_FALSE(parse_rules("ddp1;r1," + glob + ",*,*,*,off,-;d,off,-", kRedis, set));
  std::string many = "ddp1";
  for (size_t i = 0; i < kMaxRules + 1; ++i) many += ";r1,x,*,*,*,off,-";
  EXPECT_FALSE(parse_rules(many + ";d,off,-", kRedis, set));
}

TEST(RulesToml, ReachesTheLibraryUnchanged) {
  const auto file = parse_rules_file(R"(
[[rule]]
program = "redis-*;,% x"
role = "server"
address = "10.0.0.0/8"
port = "6379-6390"
action = "require"
crc = false
[[rule]]
action = "off"
port = 80
)");
  ASSERT_TRUE(file.has_value()) << file.error().expected;
  Rule otherwise;
  otherwise.action = Action::kPrefer;
  const std::string text = encode_rules(*file, otherwise).value();
  EXPECT_EQ(text,
            "ddp1;r2,redis-*%3B%2C%25%20x,s,10.0.0.0/8,6379-6390,require,0;r9,*,*,*,80-80,off,-"
            ";d,prefer,-");
  const RuleSet set = parse(text, {"redis-a;,% x", ""});
  EXPECT_EQ(set.decide(Role::kServer, at("10.2.3.4", 6379)).line, 2u);
  EXPECT_EQ(set.decide(Role::kClient, at("10.2.3.4", 80)).line, 9u);
}

TEST(RulesToml, SaysWhereAndWhatWasExpected) {
  struct Case {
    const char* toml;
    uint32_t line, column;
    const char* expected;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"[[rule]]\naction = \"on\"", 2, 10, "action:"},
           {"[[rule]]\naction = \"off\"\nport = 0", 3, 8, "port:"},
           {"[[rule]]\naction = \"off\"\nport = \"9-8\"", 3, 8, "port:"},
           {"[[rule]]\naction = \"off\"\nrole = 1", 3, 8, "role:"},
           {"[[rule]]\naction = \"off\"\naddress = \"10/8\"", 3, 11, "address:"},
           {"[[rule]]\naction = \"off\"\ncrc = \"no\"", 3, 7, "crc:"},
           {"[[rule]]\naction = \"off\"\nprogram = \"\"", 3, 11, "program:"},
           {"[[rule]]\naction = \"off\"\nprogramm = \"x\"", 3, 1, "one of the keys"},
           {"[[rule]]\nport = 1", 1, 1, "a rule with action"},
           {"[[rules]]\naction = \"off\"", 1, 3, "[[rule]] sections"},
           {"rule = [1]", 1, 9, "[[rule]] sections"},
           {"[[rule]]\naction =\n", 2, 9, "TOML:"}}) {
    const auto parsed = parse_rules_file(c.toml);
    ASSERT_FALSE(parsed.has_value()) << c.toml;
    EXPECT_EQ(parsed.error().line, c.line) << c.toml;
    EXPECT_EQ(parsed.error().column, c.column) << c.toml;
    EXPECT_TRUE(parsed.error().expected.starts_with(c.expected))
        << c.toml << ": " << parsed.error().expected;
  }
}

}  // namespace
}  // namespace ddpsock::shim
