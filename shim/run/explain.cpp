// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/explain.h"

#include <fmt/core.h>

#include <cstdlib>
#include <memory>

namespace ddpsock::shim {
namespace {

const char* meaning(Role role, Action action) {
  const bool is_client = role == Role::kClient;
  switch (action) {
    case Action::kOff:
      return "plain TCP";
    case Action::kPrefer:
      return is_client ? "DDP if the listener is found on this host and registered, else plain TCP"
                       : "DDP with clients that proved it, else the client's first bytes decide";
    case Action::kRequire:
      return is_client ? "DDP; an error (EPROTO) if the server does not speak it"
                       : "DDP; an error (EPROTO) for clients that do not speak it";
  }
  return "";
}

std::string describe_coverage(const Target& target) {
  const bool is_script = target.binary != target.path && !target.binary.empty();
  const std::string by = is_script ? fmt::format(" (run by {})", target.binary) : "";
  switch (target.finding) {
    case Target::Finding::kCovered:
      return fmt::format("program   {}{}: covered\n", target.path, by);
    case Target::Finding::kNotCovered:
      return fmt::format("program   {}{}: not covered: {}\n", target.path, by, target.reason);
    case Target::Finding::kNotFound:
    case Target::Finding::kNotRunnable:
      return fmt::format("program   {}: {}; judged by name alone\n", target.path, target.reason);
  }
  return "";
}

}  // namespace

std::string explain(const Question& q) {
  const std::unique_ptr<char, decltype(&std::free)> binary(
      realpath(q.target.binary.c_str(), nullptr), &std::free);
  const Program program{q.target.path, binary ? binary.get() : ""};
  const auto rules = std::make_unique<RuleSet>();
  if (const auto parsed = parse_rules(q.rules, program, *rules); !parsed)
    return fmt::format("rules     not usable: expected {}\n", parsed.error().expected);
  const Decision d = rules->decide(q.role, q.server);
  const std::string rule = d.line != 0 ? fmt::format("{}:{}", q.rules_file, d.line)
                                       : std::string("no rule matches; the default");
  const bool is_reached = q.target.finding != Target::Finding::kNotCovered;
  return describe_coverage(q.target) +
         fmt::format("rule      {}: {}{}\n", rule, to_text(d.action),
                     d.wants_crc ? "" : ", without CRC if the peer agrees") +
         fmt::format("verdict   {}\n", is_reached ? meaning(q.role, d.action)
                                                  : "plain TCP: the library cannot reach it") +
         (is_reached && d.action != Action::kOff ? "note      passed to another program it returns "
                                                   "to plain TCP; if it cannot, it is refused "
                                                   "(EOPNOTSUPP), or reset if it was accepted and "
                                                   "nothing was sent on it\n"
                                                 : "");
}

}  // namespace ddpsock::shim
