// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <charconv>
#include <cstring>

#include "shim/policy/rules.h"

namespace ddpsock::shim {
namespace {

constexpr std::string_view kVersion = "ddp1";

int from_hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Splits off the text up to `separator`, or all of it.
std::string_view take(std::string_view& rest, char separator) {
  const size_t end = rest.find(separator);
  const std::string_view head = rest.substr(0, end);
  rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  return head;
}

using Fault = const char*;  // what was expected; nullptr: no fault

class Parser {
 public:
  Parser(const Program& program, RuleSet& into) : program_(program), into_(into) {}

  Fault parse_record(std::string_view record) {
    if (has_default_) return "nothing after the default";
    if (record.starts_with("d,")) return parse_default(record.substr(2));
    if (record.starts_with('r')) return parse_rule(record.substr(1));
    return "a rule (r...) or the default (d...)";
  }
  bool has_default() const { return has_default_; }

 private:
  Fault parse_default(std::string_view rest) {
    Rule rule;
    if (Fault f = parse_outcome(rest, rule)) return f;
    into_.set_default(rule);
    has_default_ = true;
    return nullptr;
  }

  Fault parse_rule(std::string_view rest) {
    Rule rule;
    bool is_ours = false;
    const auto line = parse_number<uint32_t>(take(rest, ','));
    if (!line) return "the rule's line number";
    rule.line = *line;
    if (Fault f = parse_program(take(rest, ','), is_ours)) return f;
    if (Fault f = parse_role(take(rest, ','), rule)) return f;
    if (Fault f = parse_where(take(rest, ','), rule)) return f;
    if (Fault f = parse_ports(take(rest, ','), rule)) return f;
    if (Fault f = parse_outcome(rest, rule)) return f;
    if (++rules_ > kMaxRules || !into_.has_room()) return "fewer rules (256 at most)";
    if (is_ours) into_.add(rule);
    return nullptr;
  }

  Fault parse_program(std::string_view text, bool& is_ours) {
    char glob[kMaxProgramGlob];
    size_t size = 0;
    while (!text.empty()) {
      if (size == sizeof glob) return "a shorter program";
      char c = text.front();
      if (c == '%') {
        const int high = text.size() > 2 ? from_hex(text[1]) : -1;
        const int low = text.size() > 2 ? from_hex(text[2]) : -1;
        if (high < 0 || low < 0) return "two hexadecimal digits after %";
        c = static_cast<char>(high * 16 + low);
        text.remove_prefix(2);
      }
      text.remove_prefix(1);
      glob[size++] = c;
    }
    if (size == 0) return "a program";
    is_ours = is_named_by(program_, {glob, size});
    return nullptr;
  }

  static Fault parse_role(std::string_view text, Rule& rule) {
    if (text == "c") rule.role = Role::kClient;
    if (text == "s") rule.role = Role::kServer;
    return rule.role || text == "*" ? nullptr : "a role: c, s or *";
  }

  static Fault parse_where(std::string_view text, Rule& rule) {
    if (text != "*") rule.where = parse_prefix(text);
    return rule.where || text == "*" ? nullptr : "an address, a prefix or *";
  }

  static Fault parse_ports(std::string_view text, Rule& rule) {
    if (text == "*") return nullptr;
    const bool is_range = text.find('-') != text.npos;
    const auto first = parse_number<uint16_t>(take(text, '-'));
    const auto last = is_range ? parse_number<uint16_t>(text) : first;
    if (!first || !last || *first > *last) return "a port, first-last or *";
    rule.first_port = *first;
    rule.last_port = *last;
    return nullptr;
  }

  static Fault parse_outcome(std::string_view rest, Rule& rule) {
    const auto action = parse_action(take(rest, ','));
    if (!action) return "an action: require, prefer or off";
    rule.action = *action;
    if (rest == "0" || rest == "1") rule.crc = rest == "1";
    return rule.crc || rest == "-" ? nullptr : "crc: 0, 1 or -";
  }

  const Program& program_;
  RuleSet& into_;
  size_t rules_ = 0;
  bool has_default_ = false;
};

}  // namespace

std::expected<void, TextError> parse_rules(std::string_view text, const Program& program,
                                           RuleSet& into) {
  if (text.size() > kMaxRulesText) return std::unexpected(TextError{0, "a shorter text"});
  std::string_view rest = text;
  const auto at = [&](std::string_view part) {
    return static_cast<size_t>(part.data() - text.data());
  };
  if (take(rest, ';') != kVersion) return std::unexpected(TextError{0, "version ddp1"});
  Parser parser(program, into);
  while (!rest.empty()) {
    const std::string_view record = take(rest, ';');
    if (Fault f = parser.parse_record(record)) return std::unexpected(TextError{at(record), f});
  }
  if (!parser.has_default()) return std::unexpected(TextError{text.size(), "a default at the end"});
  return {};
}

}  // namespace ddpsock::shim
