// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/exec_environment.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>

namespace ddpsock::shim {
namespace {

// The value if `entry` is the variable `name`, else null.
const char* value_of(const char* entry, std::string_view name) {
  const bool is_it = strncmp(entry, name.data(), name.size()) == 0 && entry[name.size()] == '=';
  return is_it ? entry + name.size() + 1 : nullptr;
}

}  // namespace

HandoverEntry::HandoverEntry(HandoverNote note) {
  constexpr size_t kName = sizeof(kHandoverVariable) - 1;
  memcpy(text_.data(), kHandoverVariable, kName);
  text_[kName] = '=';
  char* end = std::to_chars(text_.data() + kName + 1, text_.data() + text_.size(), note.fd).ptr;
  if (note.strayed != 0) {
    *end++ = '+';
    *end++ = static_cast<char>('0' + note.strayed);
  }
  *end = '\0';
}

int parse_fd(const char* text) {
  const HandoverNote note = parse_handover(text);
  return note.strayed == 0 ? note.fd : -1;
}

HandoverNote parse_handover(const char* text) {
  HandoverNote note;
  const char* const end = text + strlen(text);
  const auto [rest, error] = std::from_chars(text, end, note.fd);
  const std::string_view strayed(rest, static_cast<size_t>(end - rest));
  const bool is_short = strayed.empty();
  const bool is_long =
      strayed.size() == 2 && strayed[0] == '+' && strayed[1] >= '1' && strayed[1] <= '7';
  if (error != std::errc{} || note.fd < 0 || (!is_short && !is_long)) return {};
  if (is_long) note.strayed = static_cast<unsigned>(strayed[1] - '0');
  return note;
}

size_t count_entries(char* const* environment) {
  size_t count = 0;
  if (environment != nullptr)
    while (environment[count] != nullptr) ++count;
  return count;
}

bool is_library_preloaded(char* const* environment) {
  for (size_t i = 0; environment != nullptr && environment[i] != nullptr; ++i)
    if (const char* list = value_of(environment[i], "LD_PRELOAD"); list != nullptr)
      return strstr(list, "libddpsock") != nullptr;
  return false;
}

void extend_environment(char** room, char* const* environment, char* entry) {
  for (size_t i = 0; environment != nullptr && environment[i] != nullptr; ++i)
    if (value_of(environment[i], kHandoverVariable) == nullptr) *room++ = environment[i];
  *room++ = entry;
  *room = nullptr;
}

}  // namespace ddpsock::shim
