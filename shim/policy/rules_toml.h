// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The rules file that people write (TOML, doc/rules.md), and its passage to the library. Used by
// ddprun only: it allocates, and toml++ throws inside.
#ifndef DDPSOCK_SHIM_POLICY_RULES_TOML_H_
#define DDPSOCK_SHIM_POLICY_RULES_TOML_H_

#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/policy/rules.h"

namespace ddpsock::shim {

struct FileRule {
  std::string program = "*";
  std::string where = "*";  // as written; valid for parse_prefix unless "*"
  Rule rule;                // rule.line is set
};

// Line and column count from 1.
struct FileError {
  uint32_t line, column;
  std::string expected;
};

std::expected<std::vector<FileRule>, FileError> parse_rules_file(std::string_view toml);

// The text for DDPSOCK_RULES (rules.h), or what is too long about it.
std::expected<std::string, std::string> encode_rules(std::span<const FileRule> rules,
                                                     const Rule& otherwise);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_RULES_TOML_H_
