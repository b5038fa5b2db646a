// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/shell_command.h"

#include <sys/wait.h>

#include <cstdlib>
#include <cstring>

#include "base/keep_errno.h"

namespace ddpsock::shim {

ShellCommand::ShellCommand(const char* entry, const char* command) : command_(command) {
  static constexpr char kExec[] = " exec /bin/sh -c '";
  static constexpr char kQuote[] = "'\\''";
  size_t size = strlen(entry) + sizeof(kExec) + strlen(command) + 1;
  for (const char* p = command; *p != '\0'; ++p) size += *p == '\'' ? strlen(kQuote) - 1 : 0;
  text_ = static_cast<char*>(malloc(size));
  if (text_ == nullptr) return;
  char* to = stpcpy(stpcpy(text_, entry), kExec);
  for (const char* p = command; *p != '\0'; ++p) {
    if (*p == '\'') {
      to = stpcpy(to, kQuote);
    } else {
      *to++ = *p;
    }
  }
  strcpy(to, "'");
}

ShellCommand::~ShellCommand() {
  const base::KeepErrno keep;
  free(text_);
}

// libc keeps the pid behind the FILE. Who is a child of this process is what is meant.
pid_t child_behind(FILE* file) {
  struct PipeFile {
    FILE file;
    const void* calls;
    pid_t child;
  };
  const base::KeepErrno keep;
  const pid_t child = reinterpret_cast<const PipeFile*>(file)->child;
  siginfo_t info{};
  const bool is_child =
      child > 0 && waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  return is_child ? child : 0;
}

}  // namespace ddpsock::shim
