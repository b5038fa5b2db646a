// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The rules of one process: which connections are to be in DDPMODE. First match wins; a default
// follows when none matches. doc/rules.md is the user's description.
//
// ddprun reads rules from a TOML file (rules_toml.h) and hands them on in the environment variable
// DDPSOCK_RULES; the library parses that text here, with no allocation and into a fixed table. The
// text is self-contained and versioned:
//
//   text    = "ddp1" *( ";" rule ) ";d," action "," crc
//   rule    = "r" line "," program "," role "," prefix "," ports "," action "," crc
//   line    = decimal; of the rule in its file, for messages
//   program = glob, bytes outside [A-Za-z0-9._/*?+@-] as %XX
//   role    = "c" / "s" / "*"
//   prefix  = address [ "/" bits ] / "*"
//   ports   = decimal [ "-" decimal ] / "*"
//   action  = "require" / "prefer" / "off"
//   crc     = "0" / "1" / "-"
#ifndef DDPSOCK_SHIM_POLICY_RULES_H_
#define DDPSOCK_SHIM_POLICY_RULES_H_

#include <array>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string_view>

#include "shim/policy/address.h"

namespace ddpsock::shim {

enum class Action : uint8_t { kOff, kPrefer, kRequire };
enum class Role : uint8_t { kClient, kServer };

inline constexpr size_t kMaxRules = 256;
inline constexpr size_t kMaxRulesText = 64 * 1024;
inline constexpr size_t kMaxProgramGlob = 256;

// One rule without its program: that part is decided when the text is parsed.
struct Rule {
  uint32_t line = 0;           // in the file it came from; 0: the default
  std::optional<Role> role{};  // none: both
  std::optional<Prefix>
      where{};  // none: all. The address connected to (client) or served (server).
  uint16_t first_port = 0, last_port = 0xffff;
  Action action = Action::kPrefer;
  std::optional<bool> crc{};

  bool has(Role r, const Address& a) const;
};

struct Decision {
  Action action;
  bool wants_crc;
  uint32_t line;  // 0: the default decided
};

// The rules that apply to one program.
class RuleSet {
 public:
  // `server` is the address served or connected to; its port counts.
  Decision decide(Role role, const Address& server) const;

  // Would any connection to a listener at `bound` be off? A wildcard listener serves every local
  // address, and a client that finds it in the registry cannot know the server's rules, so one
  // such address keeps the whole listener out.
  bool is_off_for_some(const Address& bound) const;

  // Is there a rule, or a default, that could choose a socket, or that could require DDPMODE of
  // one?
  bool can_choose() const;
  bool can_require() const;

  bool has_room() const { return count_ < kMaxRules; }
  // REQUIRES: has_room().
  void add(const Rule& rule) { rules_[count_++] = rule; }
  void set_default(const Rule& rule) { default_ = rule; }
  // For rules that do not say (DDPSOCK_CRC).
  void set_default_crc(bool wants_crc) { wants_crc_ = wants_crc; }

 private:
  std::array<Rule, kMaxRules> rules_{};
  size_t count_ = 0;
  Rule default_{.action = Action::kOff};
  bool wants_crc_ = true;
};

// The names by which rules may know a program: paths; the last component counts for globs without
// a slash. Empty ones match nothing.
struct Program {
  std::string_view started_as;  // as executed: of a script, the script
  std::string_view binary;      // the file that is mapped
};

// Does `glob` name the program? '*' stands for any characters but '/', '?' for one of them. With a
// slash the whole path is compared, otherwise its last component. Linear in memory, at most
// quadratic in time.
bool is_named_by(const Program& program, std::string_view glob);

// What is wrong with a text, and where.
struct TextError {
  size_t at;
  const char* expected;
};

// Adds to `into` the rules that apply to `program`. On an error `into` holds some prefix of them
// and must not be used.
std::expected<void, TextError> parse_rules(std::string_view text, const Program& program,
                                           RuleSet& into);

const char* to_text(Action action);
std::optional<Action> parse_action(std::string_view text);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_RULES_H_
