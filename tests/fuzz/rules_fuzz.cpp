// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Both ways in which rules arrive: the environment variable, parsed by the library, and the file,
// parsed by ddprun. What the file's parser accepts, the library's must accept too.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "shim/policy/rules.h"
#include "shim/policy/rules_toml.h"

using namespace ddpsock::shim;

namespace {

constexpr Program kProgram{"redis-server", "/usr/bin/redis-server"};

void check(bool is_true) {
  if (!is_true) std::abort();
}

void use(const RuleSet& rules) {
  for (const Role role : {Role::kClient, Role::kServer})
    for (const char* text : {"127.0.0.1", "10.1.2.3", "::", "fe80::1"}) {
      Address server = parse_address(text).value();
      server.port = 6379;
      rules.decide(role, server);
      rules.is_off_for_some(server);
    }
  rules.can_choose();
}

void fuzz_text(std::string_view text) {
  static RuleSet rules;
  rules = RuleSet();
  if (const auto parsed = parse_rules(text, kProgram, rules))
    use(rules);
  else
    check(parsed.error().at <= text.size() && parsed.error().expected != nullptr);
}

void fuzz_file(std::string_view toml) {
  const auto file = parse_rules_file(toml);
  if (!file) return check(!file.error().expected.empty());
  const auto text = encode_rules(*file, Rule());
  if (!text) return;
  static RuleSet rules;
  rules = RuleSet();
  check(parse_rules(*text, kProgram, rules).has_value());
  use(rules);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  fuzz_text(input);
  fuzz_file(input);
  return 0;
}
