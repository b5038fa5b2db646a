// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_enable.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "shim/run/ddprun_drop_in.h"
#include "shim/run/ddprun_failure.h"
#include "shim/run/ddprun_process.h"
#include "shim/run/ddprun_root.h"
#include "shim/run/ddprun_rules.h"
#include "shim/run/ddprun_sandbox.h"
#include "shim/run/ddprun_target.h"
#include "shim/run/ddprun_unit.h"

namespace ddpsock::shim {
namespace {

constexpr const char* kPreload = "LD_PRELOAD";
constexpr std::string_view kLibraryFile = "/libddpsock.so";
// systemd's own, for names without a slash.
constexpr const char* kSearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

struct Options {
  std::string unit, root = "/";
  Choice choice;
  bool allows_netlink = false;
};

bool is_variable(const std::string& assignment, std::string_view name) {
  return assignment.starts_with(name) && assignment.size() > name.size() &&
         assignment[name.size()] == '=';
}

// Programs that start others with an environment of their own, and where that one is written down.
struct Forgetful {
  std::string_view program, instead;
};
constexpr Forgetful kForgetful[] = {
    {"pg_ctlcluster", "/etc/postgresql/VERSION/CLUSTER/environment"},
    {"pg_ctl", "the environment of what calls it"},
};

// ----- what the unit says

// What LD_PRELOAD is in front of our drop-in, with its specifiers. Throws where that would be lost
// or where ours would be.
std::string old_preload(const Root& root, const Unit& unit) {
  std::string old;
  for (const Setting& s : unit.settings)
    if (s.key == "Environment" && s.value.empty() && s.is_after_ours)
      stop("{} empties Environment= behind {}; rename it to come first, or set the variables there",
           root.outside(s.file), kDropIn);
  for (const Setting& word : unit.words("Environment")) {
    if (!is_variable(word.value, kPreload)) continue;
    if (word.is_after_ours)
      stop("{} sets {} behind {}; rename it to come first", root.outside(word.file), kPreload,
           kDropIn);
    old = word.value.substr(std::string_view(kPreload).size() + 1);
  }
  for (const Setting& word : unit.words("UnsetEnvironment"))
    if (word.value == kPreload || is_variable(word.value, kPreload))
      stop("{} unsets {} whatever is set", root.outside(word.file), kPreload);
  return old;
}

// A file of variables goes before Environment=.
void check_environment_files(const Root& root, const Unit& unit, std::vector<Remark>& remarks) {
  for (const Setting* setting : unit.all("EnvironmentFile")) {
    const std::string path =
        setting->value.starts_with('-') ? setting->value.substr(1) : setting->value;
    if (path.find_first_of("%*?[") != path.npos) {
      remarks.push_back(
          {false, fmt::format("EnvironmentFile={} was not looked at; what it sets goes "
                              "before the drop-in",
                              path)});
      continue;
    }
    std::istringstream lines(root.read(path).value_or(""));
    for (std::string line; std::getline(lines, line);) {
      line.erase(0, line.find_first_not_of(" \t"));
      for (const char* name : {kPreload, "DDPSOCK_RULES", "DDPSOCK_ENGINE"})
        if (is_variable(line, name))
          remarks.push_back({true, fmt::format("{} sets {}, and goes before what a unit says; take "
                                               "it out there",
                                               root.outside(path), name)});
    }
  }
}

// The program of a line of ExecStart=, and its words.
std::vector<std::string> command_of(const Setting& line) {
  auto words = split_words(line.value);
  if (!words || words->empty()) stop("{}: {}= names no program", line.file, line.key);
  std::string& first = words->front();
  first.erase(0, std::min(first.find_first_not_of("@-:+!|"), first.size()));
  return std::move(*words);
}

Place place_of(const Root& root, const Unit& unit) {
  Place place{root, kSearchPath, 0, 0};
  const std::string user = unit.last("User").value_or(unit.is_on("DynamicUser") ? "?" : "root");
  const auto found = root.find_user(user);
  place.uid = found ? found->uid : ~uid_t{0} - 1;
  place.gid = found ? found->gid : ~gid_t{0} - 1;
  if (const auto group = unit.last("Group"); group && *group != user) place.gid = ~gid_t{0} - 1;
  return place;
}

// ----- what would not work

// Whatever the program does is plain TCP.
bool is_wholly_off(const ChosenRules& chosen, Action otherwise, const Program& program) {
  for (const FileRule& file : chosen.rules) {
    const Rule& rule = file.rule;
    if (file.program != "*" && !is_named_by(program, file.program)) continue;
    if (rule.action != Action::kOff) return false;
    const bool is_for_all =
        !rule.role && !rule.where && rule.first_port == 0 && rule.last_port == 0xffff;
    if (is_for_all) return true;
  }
  return otherwise == Action::kOff;
}

void check_rules(const Choice& choice, const ChosenRules& chosen, const Target& target,
                 std::vector<Remark>& remarks) {
  const Program program{target.path, target.binary};
  if (is_wholly_off(chosen, choice.action.value_or(Action::kPrefer), program))
    remarks.push_back(
        {true, fmt::format("{} says plain TCP for all that {} does",
                           chosen.source.empty() ? "--off" : chosen.source, target.path)});
}

void check_programs(const Root& root, const Unit& unit, const Choice& choice,
                    const ChosenRules& chosen, std::vector<Remark>& remarks) {
  const std::vector<const Setting*> lines = unit.all("ExecStart");
  if (lines.empty()) remarks.push_back({true, "it starts no program (ExecStart=)"});
  const Place place = place_of(root, unit);
  for (const Setting* line : lines) {
    const std::vector<std::string> command = command_of(*line);
    const std::string& program = command.front();
    if (program.find('%') != program.npos) {
      remarks.push_back(
          {false, fmt::format("{}: which program that is depends on the instance", program)});
      continue;
    }
    const Target target = examine_target(command, place);
    if (target.finding != Target::Finding::kCovered)
      remarks.push_back({true, fmt::format("{}: not covered: {}", program, target.reason)});
    const std::string name = program.substr(program.rfind('/') + 1);
    for (const Forgetful& f : kForgetful)
      if (name == f.program)
        remarks.push_back(
            {true, fmt::format("{} starts the service with an environment of its own: "
                               "what follows belongs into {}",
                               program, f.instead)});
    if (target.finding == Target::Finding::kCovered) check_rules(choice, chosen, target, remarks);
  }
}

// The path as the service will name it.
std::string library_in(const Root& root) {
  std::string all;
  for (const std::string& path : library_places()) {
    if (root.exists(path)) return path;
    all += all.empty() ? path : " nor " + path;
  }
  stop("the library is neither {}: install ddpsock {}", all,
       root.is_image() ? "in " + root.outside("/") : "first");
}

std::string suggest_profile(const Root& root, const Unit& unit) {
  for (const Profile& profile : list_profiles()) {
    const auto parsed = parse_rules_file(read_whole_file(profile.path));
    if (!parsed) continue;
    for (const Setting* line : unit.all("ExecStart")) {
      const std::string path = command_of(*line).front();
      const std::string binary = root.real_path(path);
      const Program program{path, binary};
      for (const FileRule& rule : *parsed)
        if (rule.program != "*" && is_named_by(program, rule.program)) return profile.name;
    }
  }
  return "";
}

// ----- the drop-in

std::string with_library(const std::string& old, const std::string& library) {
  std::string list = ":" + old + ":";
  std::ranges::replace(list, ' ', ':');
  if (list.find(std::string(kLibraryFile) + ":") != list.npos) return old;
  return old.empty() ? library : old + ":" + library;
}

std::string variable(const std::string& name, const std::string& value) {
  return fmt::format("Environment={}\n", quote_word(fmt::format("{}={}", name, value)));
}

std::string compose(const Options& options, const ChosenRules& chosen, const std::string& preload) {
  std::string body = "[Service]\n" + variable(kPreload, preload) +
                     variable("DDPSOCK_RULES", escape_specifiers(chosen.text));
  if (!options.choice.engine.empty()) body += variable("DDPSOCK_ENGINE", options.choice.engine);
  if (options.allows_netlink) body += "RestrictAddressFamilies=AF_NETLINK\n";
  return body;
}

// False: something stands in the way.
bool print_remarks(const std::vector<Remark>& remarks) {
  bool is_fine = true;
  for (const Remark& r : remarks) {
    fmt::print(stderr, "ddprun: {}: {}\n", r.is_obstacle ? "refused" : "note", r.text);
    is_fine = is_fine && !r.is_obstacle;
  }
  return is_fine;
}

// What has changed is read by systemd at its next reload, which is asked for where it runs.
void reload(const Root& root) {
  if (root.is_image() || access("/run/systemd/system", F_OK) != 0) return;
  if (!output_of({"systemctl", "daemon-reload"}))
    fmt::print(stderr, "ddprun: systemctl daemon-reload failed; it has to be done by hand\n");
}

void print_restart(const Root& root, const std::string& unit) {
  if (root.is_image()) return;
  const bool is_template = unit.find("@.") != unit.npos;
  fmt::print("It takes effect when {} is restarted: systemctl restart {}\n",
             is_template ? "an instance" : "the service",
             is_template ? "'" + unit.substr(0, unit.find("@.")) + "@*'" : unit);
}

int parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kFailed;
  }
  return -1;
}

int enable(const Options& options) {
  const Root root(options.root);
  const std::string asked = complete_unit_name(options.unit);
  const ChosenRules chosen = read_choice(options.choice);
  Unit unit = load_unit(root, asked);
  if (unit.name != asked) fmt::print("{} is another name of {}\n", asked, unit.name);
  if (look_at_drop_in(root, unit.name) == DropIn::kEdited)
    stop("{} is not as ddprun wrote it; remove it first", root.outside(drop_in_path(unit.name)));
  if (options.allows_netlink)
    unit.settings.push_back({"RestrictAddressFamilies", "AF_NETLINK", kDropIn, false});

  const std::string library = library_in(root);
  const std::string preload = with_library(old_preload(root, unit), escape_specifiers(library));
  const std::string body = compose(options, chosen, preload);
  std::vector<Remark> remarks = examine_sandbox(unit, library);
  if (library.find_first_of(" :") != library.npos)
    remarks.push_back({true, library + ": LD_PRELOAD cannot name a path with a blank or a colon"});
  check_environment_files(root, unit, remarks);
  check_programs(root, unit, options.choice, chosen, remarks);
  if (!print_remarks(remarks)) {
    fmt::print(stderr, "ddprun: {} is not enabled; the drop-in would have been:\n{}", unit.name,
               body);
    return kFailed;
  }
  if (options.choice.profile.empty() && options.choice.rules_file.empty())
    if (const std::string name = suggest_profile(root, unit); !name.empty())
      fmt::print("There is a profile for it: ddprun profiles {}\n", name);

  const std::string path = root.outside(drop_in_path(unit.name));
  if (!write_drop_in(root, unit.name, body)) {
    fmt::print("{} is as it has to be\n", path);
    return 0;
  }
  fmt::print("{} is written\n", path);
  reload(root);
  print_restart(root, unit.name);
  return 0;
}

int disable(const Options& options) {
  const Root root(options.root);
  std::string name = complete_unit_name(options.unit);
  // An alias, unless the unit is gone and its drop-in is not.
  if (look_at_drop_in(root, name) == DropIn::kNone) name = load_unit(root, name).name;
  const std::string path = root.outside(drop_in_path(name));
  switch (look_at_drop_in(root, name)) {
    case DropIn::kNone:
      fmt::print("{} is not enabled\n", name);
      return 0;
    case DropIn::kEdited:
      stop("{} is not as ddprun wrote it, and is left alone", path);
    case DropIn::kOurs:
      break;
  }
  remove_drop_in(root, name);
  fmt::print("{} is removed\n", path);
  reload(root);
  print_restart(root, name);
  return 0;
}

}  // namespace

int run_enable(int argc, char** argv) {
  CLI::App app("Preloads ddpsock into a systemd service, by a drop-in. Nothing is restarted.",
               "ddprun enable");
  Options options;
  app.add_option("UNIT", options.unit, "the service; foo@ for all instances")->required();
  app.add_option("--root", options.root, "of an image, instead of this system")->type_name("DIR");
  app.add_flag("--netlink", options.allows_netlink,
               "let the service use netlink, where it is restricted");
  declare_choice(app, options.choice);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  return enable(options);
}

int run_disable(int argc, char** argv) {
  CLI::App app("Takes back what `ddprun enable` did. Nothing is restarted.", "ddprun disable");
  Options options;
  app.add_option("UNIT", options.unit, "the service")->required();
  app.add_option("--root", options.root, "of an image, instead of this system")->type_name("DIR");
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  return disable(options);
}

}  // namespace ddpsock::shim
