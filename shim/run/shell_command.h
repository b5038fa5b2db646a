// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// system() and popen(): libc starts the shell past any preload, with the program's environment, so
// what the shell must be told goes into the command.
#ifndef DDPSOCK_SHIM_RUN_SHELL_COMMAND_H_
#define DDPSOCK_SHIM_RUN_SHELL_COMMAND_H_

#include <stdio.h>
#include <sys/types.h>

namespace ddpsock::shim {

// A command for a shell that puts `entry` into its environment and is then, as the same process,
// the shell that was asked for. Without memory for that: `command`.
class ShellCommand {
 public:
  ShellCommand(const char* entry, const char* command);
  ShellCommand(const ShellCommand&) = delete;
  ShellCommand& operator=(const ShellCommand&) = delete;
  ~ShellCommand();
  const char* get() const { return text_ != nullptr ? text_ : command_; }

 private:
  char* text_;
  const char* command_;
};

// The process that popen() has started for `file`; 0 if that cannot be told.
pid_t child_behind(FILE* file);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_SHELL_COMMAND_H_
