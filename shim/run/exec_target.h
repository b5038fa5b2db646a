// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program that is about to be executed: will it be, and will it load this library?
#ifndef DDPSOCK_SHIM_RUN_EXEC_TARGET_H_
#define DDPSOCK_SHIM_RUN_EXEC_TARGET_H_

namespace ddpsock::shim {

// What exec is asked for: the file `path` seen from `directory`; with `is_searched` and without a
// slash, the first of that name in PATH; with an empty path the file that `directory` is.
struct ExecTarget {
  int directory;
  const char* path;
  bool is_searched = false;
  bool has_shell = false;  // libc has the shell run what the kernel does not
};

struct ExecOutlook {
  bool may_be_executed;  // nothing that can be seen speaks against it; no promise
  // Static text: why the dynamic linker will not preload anything into the program, or into that
  // which interprets it, or that this cannot be told. Null if it will, or where nothing is
  // executed, as far as can be seen.
  const char* why_not_preloaded;
};

// Async-signal-safe; needs no descriptor to tell what may be executed. errno may change.
ExecOutlook look_at(const ExecTarget& target);
// Does that only say what could not be found out?
bool is_doubtful(const char* why_not_preloaded);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_EXEC_TARGET_H_
