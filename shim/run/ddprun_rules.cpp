// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_rules.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "shim/run/ddprun_failure.h"

namespace ddpsock::shim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libddpsock.so";
constexpr const char* kOfTheAdministrator = "/etc/ddpsock/profiles";

fs::path own_folder() {
  std::error_code error;
  const auto self = fs::read_symlink("/proc/self/exe", error);
  if (error) stop("cannot tell where ddprun is: {}", error.message());
  return self.parent_path();
}

std::string summary_of(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.starts_with("#");)
    if (line.find("SPDX") == line.npos) return line.substr(line.find_first_not_of("# "));
  return "";
}

Profile find_profile(const std::string& name) {
  std::string all;
  for (const Profile& p : list_profiles()) {
    if (p.name == name) return p;
    all += all.empty() ? p.name : ", " + p.name;
  }
  stop("no profile '{}' (there are: {})", name, all);
}

std::vector<FileRule> read_rules_file(const std::string& path) {
  auto parsed = parse_rules_file(read_whole_file(path));
  if (parsed) return std::move(*parsed);
  const FileError& e = parsed.error();
  stop("{}:{}:{}: expected {}", path, e.line, e.column, e.expected);
}

}  // namespace

std::string read_whole_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) stop("{}: is a directory", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) stop("{}: {}", path, strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

void declare_choice(CLI::App& app, Choice& choice) {
  app.add_option("--engine", choice.engine, "engine for connections in DDPMODE")
      ->check(CLI::IsMember({"auto", "user", "shm"}));
  auto* rules = app.add_option("--rules", choice.rules_file, "rules file (TOML)");
  rules->type_name("FILE");
  app.add_option("--profile", choice.profile, "rules that come with ddpsock (ddprun profiles)")
      ->type_name("NAME")
      ->excludes(rules);
  const auto add_default = [&](const char* name, Action action, const char* help) {
    return app.add_flag_callback(name, [&choice, action] { choice.action = action; }, help);
  };
  auto* require = add_default("--require", Action::kRequire,
                              "where no rule matches: DDP, or an error; not covered: exit 125");
  auto* prefer = add_default("--prefer", Action::kPrefer,
                             "where no rule matches: DDP with peers that prove it (default)");
  auto* off = add_default("--off", Action::kOff, "where no rule matches: plain TCP");
  require->excludes(prefer)->excludes(off);
  prefer->excludes(off);
}

ChosenRules read_choice(const Choice& choice) {
  ChosenRules chosen;
  chosen.source = choice.profile.empty() ? choice.rules_file : find_profile(choice.profile).path;
  if (!chosen.source.empty()) chosen.rules = read_rules_file(chosen.source);
  auto text = encode_rules(chosen.rules, Rule{.action = choice.action.value_or(Action::kPrefer)});
  if (!text) stop("{}: {}", chosen.source, text.error());
  chosen.text = std::move(*text);
  return chosen;
}

std::vector<Profile> list_profiles() {
  std::map<std::string, Profile> found;
  for (const fs::path& folder :
       {fs::path(kOfTheAdministrator), own_folder() / "profiles", fs::path(DDPSOCK_PROFILES)}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".toml" || found.contains(path.stem())) continue;
      found[path.stem()] = {path.stem(), path, summary_of(read_whole_file(path))};
    }
  }
  std::vector<Profile> profiles;
  for (auto& [name, profile] : found) profiles.push_back(std::move(profile));
  return profiles;
}

int run_profiles(int argc, char** argv) {
  CLI::App app("Lists the rules that come with ddpsock, or shows those of one profile.",
               "ddprun profiles");
  std::string name;
  app.add_option("NAME", name, "the profile to show");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kFailed;
  }
  if (!name.empty()) {
    const Profile profile = find_profile(name);
    fmt::print("# {}\n{}", profile.path, read_whole_file(profile.path));
    return 0;
  }
  for (const Profile& p : list_profiles()) fmt::print("{:<12} {}\n", p.name, p.summary);
  return 0;
}

std::vector<std::string> library_places() {
  return {own_folder() / kLibrary, fs::path(DDPSOCK_LIBDIR) / kLibrary};
}

std::string find_library() {
  for (const std::string& path : library_places())
    if (access(path.c_str(), R_OK) == 0) return path;
  return "";
}

}  // namespace ddpsock::shim
