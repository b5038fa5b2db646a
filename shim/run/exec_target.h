// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Will a program that is about to be executed load this library?
#ifndef DDPSOCK_SHIM_RUN_EXEC_TARGET_H_
#define DDPSOCK_SHIM_RUN_EXEC_TARGET_H_

namespace ddpsock::shim {

// What exec is asked for: the file `path` seen from `directory`; with `is_searched` and without a
// slash, the first of that name in PATH; with an empty path the file that `directory` is.
struct ExecTarget {
  int directory;
  const char* path;
  bool is_searched = false;
};

// Static text: why the dynamic linker will not preload anything into the program, or into that
// which interprets it, or that this cannot be told. Null if it will, or if there is no such file.
// Async-signal-safe; errno may change.
const char* why_not_preloaded(const ExecTarget& target);
// Is that answer one that only says what could not be found out?
bool is_doubtful(const char* why_not_preloaded);

// As far as a look tells, which is no promise. errno may change.
bool may_be_executed(const ExecTarget& target);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_EXEC_TARGET_H_
