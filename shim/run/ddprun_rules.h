// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which rules a program is given: from a file, from a profile that the package brings, or the
// default alone; and the library that obeys them.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_RULES_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_RULES_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shim/policy/rules_toml.h"

namespace ddpsock::shim {

// What the command line says of rules.
struct Choice {
  std::string engine, rules_file, profile;
  std::optional<Action> action;  // where no rule matches
};

// --engine, --rules, --profile, --require, --prefer, --off.
void declare_choice(CLI::App& app, Choice& choice);

struct ChosenRules {
  std::string source;  // the file, for messages; empty: only the default applies
  std::vector<FileRule> rules;
  std::string text;  // for DDPSOCK_RULES
};
// Throws Failure.
ChosenRules read_choice(const Choice& choice);

// A rules file that explains itself: its first comment behind the licence's line is the summary.
struct Profile {
  std::string name, path, summary;
};
// By name. Of two with one name, that of the administrator.
std::vector<Profile> list_profiles();

// `ddprun profiles [NAME]`.
int run_profiles(int argc, char** argv);

// Throws Failure.
std::string read_whole_file(const std::string& path);

// Beside ddprun in a build, in the library folder when installed. Empty: in neither.
std::string find_library();
// Where that is looked for, in order.
std::vector<std::string> library_places();

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_RULES_H_
