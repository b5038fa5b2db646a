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

HandoverEntry::HandoverEntry(int fd) {
  constexpr size_t kName = sizeof(kHandoverVariable) - 1;
  memcpy(text_.data(), kHandoverVariable, kName);
  text_[kName] = '=';
  *std::to_chars(text_.data() + kName + 1, text_.data() + text_.size() - 1, fd).ptr = '\0';
}

int parse_fd(const char* text) {
  int fd = -1;
  const char* end = text + strlen(text);
  const auto [rest, error] = std::from_chars(text, end, fd);
  return error == std::errc{} && rest == end && fd >= 0 ? fd : -1;
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
