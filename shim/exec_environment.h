// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The environment of a program that is executed while streams of ours are open: the caller's, and
// one variable that tells the new program's library of them. Built in room that the
// caller provides: exec may be called in a signal handler or in a vfork child.
#ifndef DDPSOCK_SHIM_EXEC_ENVIRONMENT_H_
#define DDPSOCK_SHIM_EXEC_ENVIRONMENT_H_

#include <array>
#include <cstddef>
#include <string_view>

namespace ddpsock::shim {

inline constexpr char kHandoverVariable[] = "DDPSOCK_HANDOVER";

// What the variable says.
struct HandoverNote {
  int fd = -1;           // where the state of the streams is; -1: the variable is not ours
  unsigned strayed = 0;  // a bit for each of 0 to 2 that strayed there (run/inherited_streams.h)
};

// The text of the variable.
class HandoverEntry {
 public:
  explicit HandoverEntry(HandoverNote note);  // REQUIRES: a descriptor
  char* text() { return text_.data(); }

 private:
  std::array<char, sizeof(kHandoverVariable) + 14> text_;  // '=', ten digits, '+', one, the end
};

// A descriptor written in decimal; -1 if `text` is none.
int parse_fd(std::string_view text);
HandoverNote parse_handover(std::string_view text);

// Of an environment, which may be null as the kernel allows.
size_t count_entries(char* const* environment);

// Does LD_PRELOAD name this library, so that the program will be covered?
bool is_library_preloaded(char* const* environment);

// Writes the entries of `environment`, but for an earlier handover, then `entry` and the final
// null. REQUIRES: room for count_entries() + 2.
void extend_environment(char** room, char* const* environment, char* entry);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_EXEC_ENVIRONMENT_H_
