// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/rules.h"

#include <algorithm>

namespace ddpsock::shim {
namespace {

std::string_view last_component(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// Backtracks only to the last '*', which is enough because '*' takes the fewest characters first.
bool matches(std::string_view text, std::string_view glob) {
  size_t t = 0, g = 0, star = glob.npos, resume = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (g < glob.size() && ((glob[g] == '?' && text[t] != '/') || glob[g] == text[t])) {
      ++g;
      ++t;
    } else if (star != glob.npos && text[resume] != '/') {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace

bool Rule::has(Role r, const Address& a) const {
  return (!role || *role == r) && a.port >= first_port && a.port <= last_port &&
         (!where || where->has(a));
}

Decision RuleSet::decide(Role role, const Address& server) const {
  const auto rules = std::span(rules_).first(count_);
  const auto found =
      std::ranges::find_if(rules, [&](const Rule& r) { return r.has(role, server); });
  const Rule& rule = found != rules.end() ? *found : default_;
  return {rule.action, rule.crc.value_or(wants_crc_), rule.line};
}

bool RuleSet::is_off_for_some(const Address& bound) const {
  if (!bound.is_wildcard()) return decide(Role::kServer, bound).action == Action::kOff;
  for (const Rule& rule : std::span(rules_).first(count_)) {
    Rule anywhere = rule;
    anywhere.where.reset();
    if (!anywhere.has(Role::kServer, bound)) continue;
    if (rule.action == Action::kOff) return true;
    if (!rule.where) return false;
  }
  return default_.action == Action::kOff;
}

bool RuleSet::can_choose() const {
  const auto chooses = [](const Rule& r) { return r.action != Action::kOff; };
  return chooses(default_) || std::ranges::any_of(std::span(rules_).first(count_), chooses);
}

bool RuleSet::can_require() const {
  const auto requires_it = [](const Rule& r) { return r.action == Action::kRequire; };
  return requires_it(default_) || std::ranges::any_of(std::span(rules_).first(count_), requires_it);
}

bool is_named_by(const Program& program, std::string_view glob) {
  const bool is_path = glob.find('/') != glob.npos;
  for (std::string_view name : {program.started_as, program.binary}) {
    if (name.empty()) continue;
    if (matches(is_path ? name : last_component(name), glob)) return true;
  }
  return false;
}

const char* to_text(Action action) {
  switch (action) {
    case Action::kOff:
      return "off";
    case Action::kPrefer:
      return "prefer";
    case Action::kRequire:
      return "require";
  }
  return "";
}

std::optional<Action> parse_action(std::string_view text) {
  for (Action a : {Action::kOff, Action::kPrefer, Action::kRequire})
    if (text == to_text(a)) return a;
  return std::nullopt;
}

}  // namespace ddpsock::shim
