// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/rules_toml.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <charconv>

namespace ddpsock::shim {
namespace {

constexpr std::string_view kKeys = "program, role, address, port, action, crc";

// Thrown and caught in this file only, as toml++ does with its own.
struct Malformed {
  FileError error;
};

[[noreturn]] void reject(const toml::source_region& at, std::string expected) {
  throw Malformed{{at.begin.line, at.begin.column, std::move(expected)}};
}

std::string read_text(const toml::node& node, std::string_view expected) {
  const auto* text = node.as_string();
  if (text == nullptr) reject(node.source(), std::string(expected));
  return text->get();
}

void read_program(const toml::node& node, FileRule& into) {
  constexpr std::string_view kExpected =
      "program: the name or the path of a program, with * and ? (1 to 256 bytes)";
  into.program = read_text(node, kExpected);
  if (into.program.empty() || into.program.size() > kMaxProgramGlob)
    reject(node.source(), std::string(kExpected));
}

void read_role(const toml::node& node, FileRule& into) {
  constexpr std::string_view kExpected = "role: \"client\" or \"server\"";
  const std::string role = read_text(node, kExpected);
  if (role != "client" && role != "server") reject(node.source(), std::string(kExpected));
  into.rule.role = role == "client" ? Role::kClient : Role::kServer;
}

void read_address(const toml::node& node, FileRule& into) {
  constexpr std::string_view kExpected =
      "address: an IPv4 or IPv6 address or prefix, such as \"10.0.0.0/8\" or \"fd00::/8\"";
  into.where = read_text(node, kExpected);
  into.rule.where = parse_prefix(into.where);
  if (!into.rule.where) reject(node.source(), std::string(kExpected));
}

bool parse_port(std::string_view text, uint16_t& port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port != 0;
}

void read_port(const toml::node& node, FileRule& into) {
  constexpr std::string_view kExpected =
      "port: a number from 1 to 65535, or a range \"first-last\"";
  Rule& rule = into.rule;
  if (const auto* number = node.as_integer()) {
    const int64_t port = number->get();
    if (port < 1 || port > 0xffff) reject(node.source(), std::string(kExpected));
    rule.first_port = rule.last_port = static_cast<uint16_t>(port);
    return;
  }
  const std::string text = read_text(node, kExpected);
  const size_t dash = text.find('-');
  const std::string_view all = text;
  if (!parse_port(all.substr(0, dash), rule.first_port) ||
      !parse_port(dash == text.npos ? all : all.substr(dash + 1), rule.last_port) ||
      rule.first_port > rule.last_port)
    reject(node.source(), std::string(kExpected));
}

void read_action(const toml::node& node, FileRule& into) {
  constexpr std::string_view kExpected = "action: \"require\", \"prefer\" or \"off\"";
  const auto action = parse_action(read_text(node, kExpected));
  if (!action) reject(node.source(), std::string(kExpected));
  into.rule.action = *action;
}

void read_crc(const toml::node& node, FileRule& into) {
  const auto* value = node.as_boolean();
  if (value == nullptr) reject(node.source(), "crc: true or false");
  into.rule.crc = value->get();
}

FileRule read_rule(const toml::table& table) {
  FileRule rule;
  rule.rule.line = table.source().begin.line;
  bool has_action = false;
  for (const auto& [key, value] : table) {
    if (key == "program")
      read_program(value, rule);
    else if (key == "role")
      read_role(value, rule);
    else if (key == "address")
      read_address(value, rule);
    else if (key == "port")
      read_port(value, rule);
    else if (key == "crc")
      read_crc(value, rule);
    else if (key == "action")
      read_action(value, rule), has_action = true;
    else
      reject(key.source(), fmt::format("one of the keys {}, not '{}'", kKeys, key.str()));
  }
  if (!has_action)
    reject(table.source(), "a rule with action = \"require\", \"prefer\" or \"off\"");
  return rule;
}

std::vector<FileRule> read_rules(const toml::table& file) {
  std::vector<FileRule> rules;
  for (const auto& [key, value] : file) {
    const auto* array = value.as_array();
    if (key != "rule" || array == nullptr)
      reject(key.source(), "[[rule]] sections and nothing else");
    for (const toml::node& element : *array) {
      const auto* table = element.as_table();
      if (table == nullptr) reject(element.source(), "[[rule]] sections and nothing else");
      if (rules.size() == kMaxRules)
        reject(element.source(), fmt::format("at most {} rules", kMaxRules));
      rules.push_back(read_rule(*table));
    }
  }
  return rules;
}

std::string escape(std::string_view program) {
  std::string out;
  for (const char c : program) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          std::string_view("._/*?+@-").find(c) != std::string_view::npos;
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string encode_outcome(const Rule& rule) {
  return fmt::format("{},{}", to_text(rule.action), rule.crc ? (*rule.crc ? "1" : "0") : "-");
}

std::string encode_rule(const FileRule& from) {
  const Rule& rule = from.rule;
  const char* role = !rule.role ? "*" : *rule.role == Role::kClient ? "c" : "s";
  const bool has_ports = rule.first_port != 0 || rule.last_port != 0xffff;
  return fmt::format(";r{},{},{},{},{},{}", rule.line, escape(from.program), role, from.where,
                     has_ports ? fmt::format("{}-{}", rule.first_port, rule.last_port) : "*",
                     encode_outcome(rule));
}

}  // namespace

std::expected<std::vector<FileRule>, FileError> parse_rules_file(std::string_view toml) {
  try {
    return read_rules(toml::parse(toml));
  } catch (const Malformed& m) {
    return std::unexpected(m.error);
  } catch (const toml::parse_error& e) {
    const auto at = e.source().begin;
    return std::unexpected(FileError{at.line, at.column, fmt::format("TOML: {}", e.description())});
  }
}

std::expected<std::string, std::string> encode_rules(std::span<const FileRule> rules,
                                                     const Rule& otherwise) {
  std::string text = "ddp1";
  for (const FileRule& rule : rules) text += encode_rule(rule);
  text += ";d," + encode_outcome(otherwise);
  if (text.size() > kMaxRulesText)
    return std::unexpected(
        fmt::format("{} bytes of rules, and {} is the most a program can be given", text.size(),
                    kMaxRulesText));
  return text;
}

}  // namespace ddpsock::shim
