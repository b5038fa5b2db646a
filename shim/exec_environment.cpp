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

int parse_fd(std::string_view text) {
  int fd = -1;
  const auto [rest, error] = std::from_chars(text.begin(), text.end(), fd);
  return error == std::errc{} && rest == text.end() && fd >= 0 ? fd : -1;
}

HandoverNote parse_handover(std::string_view text) {
  unsigned strayed = 0;
  if (text.size() > 2 && text[text.size() - 2] == '+') {
    const char digit = text.back();
    if (digit < '1' || digit > '7') return {};
    strayed = static_cast<unsigned>(digit - '0');
    text.remove_suffix(2);
  }
  const int fd = parse_fd(text);
  return fd >= 0 ? HandoverNote{fd, strayed} : HandoverNote{};
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
