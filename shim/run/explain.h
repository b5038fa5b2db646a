// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `ddprun --explain`: the verdict for a program and an address, without running it.
#ifndef DDPSOCK_SHIM_RUN_EXPLAIN_H_
#define DDPSOCK_SHIM_RUN_EXPLAIN_H_

#include <string>

#include "shim/policy/rules.h"
#include "shim/run/ddprun_target.h"

namespace ddpsock::shim {

struct Question {
  const Target& target;
  Role role;
  Address server;            // the address connected to or served
  std::string rules_file;    // for messages; empty: only the default applies
  const std::string& rules;  // as DDPSOCK_RULES will have it
};

// Whole lines, ready to print.
std::string explain(const Question& question);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_EXPLAIN_H_
