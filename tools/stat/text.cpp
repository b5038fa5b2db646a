// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/stat/text.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace ddpsock::stat {
namespace {

constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct Sequence {
  size_t size;  // bytes, at least 1
  uint32_t code;
  bool is_valid;
};

// The first character of `text`, which is not empty. Overlong forms, surrogates and what lies
// beyond Unicode are not valid.
Sequence first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, lead, true};
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return {1, 0, false};
  uint32_t code = lead & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {1, 0, false};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const uint32_t least = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0x80;
  const bool is_valid = code >= least && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return is_valid ? Sequence{size, code, true} : Sequence{1, 0, false};
}

template <typename F>
void each_character(std::string_view text, F visit) {
  while (!text.empty()) {
    const Sequence s = first_of(text);
    visit(s, text.substr(0, s.size));
    text.remove_prefix(s.size);
  }
}

// Controls, those of eight bits too, and marks that turn the direction of writing.
bool is_harmless(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  return !(code >= 0x200b && code <= 0x200f) && !(code >= 0x2028 && code <= 0x202e) &&
         !(code >= 0x2066 && code <= 0x2069) && code != 0xfeff;
}

}  // namespace

std::string in_short(uint64_t value) {
  constexpr std::string_view kUnits = "KMGTPE";
  if (value < 1000) return fmt::format("{}", value);
  auto scaled = static_cast<double>(value);
  size_t unit = 0;
  for (scaled /= 1024; scaled >= 999.5 && unit + 1 < kUnits.size(); ++unit) scaled /= 1024;
  const int digits = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", scaled, digits, kUnits[unit]);
}

std::string host_text(const engine::AddressView& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const bool is_mapped =
      address.family == 6 && std::equal(kMapped.begin(), kMapped.end(), address.host.begin());
  if (address.family == 4) inet_ntop(AF_INET, address.host.data(), text, sizeof text);
  if (is_mapped) inet_ntop(AF_INET, address.host.data() + kMapped.size(), text, sizeof text);
  if (address.family == 6 && !is_mapped)
    inet_ntop(AF_INET6, address.host.data(), text, sizeof text);
  return *text != '\0' ? text : "?";
}

std::string address_text(const engine::AddressView& address) {
  const std::string host = host_text(address);
  if (host == "?") return host;
  return host.find(':') != host.npos ? fmt::format("[{}]:{}", host, address.port)
                                     : fmt::format("{}:{}", host, address.port);
}

std::string printable(std::string_view text) {
  std::string out;
  each_character(text, [&](const Sequence& s, std::string_view bytes) {
    s.is_valid&& is_harmless(s.code) ? out.append(bytes) : out.append("?");
  });
  return out;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  each_character(text, [&](const Sequence& s, std::string_view bytes) {
    if (!s.is_valid) {
      out += "\\ufffd";
    } else if (s.code == '"' || s.code == '\\') {
      out += '\\';
      out += bytes;
    } else if (is_harmless(s.code)) {
      out += bytes;
    } else {
      out += fmt::format("\\u{:04x}", s.code);
    }
  });
  return out + "\"";
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  each_character(text, [&](const Sequence&, std::string_view) { ++columns; });
  return columns;
}

std::string cut(std::string_view text, size_t width) {
  std::string out;
  size_t columns = 0;
  each_character(text, [&](const Sequence&, std::string_view bytes) {
    if (columns++ < width) out += bytes;
  });
  return out;
}

}  // namespace ddpsock::stat
