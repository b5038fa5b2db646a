// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Can a preloaded library reach a program? Decided from its file before it is started: LD_PRELOAD
// is silently without effect in static, privileged and Go programs, and under another libc.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_TARGET_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_TARGET_H_

#include <sys/types.h>

#include <span>
#include <string>

#include "shim/run/ddprun_root.h"

namespace ddpsock::shim {

// Where a program is to be started, and by whom.
struct Place {
  const Root& root;
  std::string search_path;  // as PATH
  uid_t uid;
  gid_t gid;
};

struct Target {
  enum class Finding {
    kCovered,
    kNotCovered,  // runs, but untouched; `reason` says why
    kNotFound,    // the shell's 127
    kNotRunnable  // the shell's 126
  };
  Finding finding;
  std::string path;    // what exec will start; of a name without slash, where PATH has it
  std::string binary;  // the ELF file at the end of the #! lines
  std::string reason;
};

// Resolves the first of `words` as execvp would and follows #! lines, through env(1) too. Where it
// is the dynamic loader itself, the program that the further words name is what is looked at.
Target examine_target(std::span<const std::string> words, const Place& place);
// Started here, by this process.
Target examine_target(std::span<const std::string> words);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_TARGET_H_
