// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_sandbox.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>

#include "shim/policy/our_calls.h"
#include "shim/policy/registry_table.h"
#include "shim/run/ddprun_failure.h"
#include "shim/run/ddprun_process.h"

namespace ddpsock::shim {
namespace {

constexpr const char* kRegistryFolder = "/dev/shm";
constexpr int kMostNesting = 8;  // of sets of system calls

bool is_below(const std::string& path, std::string_view folder) {
  while (folder.ends_with('/')) folder.remove_suffix(1);
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// Without the marks in front of paths of settings, and what follows a colon.
std::string path_in(std::string_view word) {
  while (word.starts_with('-') || word.starts_with('+')) word.remove_prefix(1);
  return std::string(word.substr(0, word.find(':')));
}

// The longest path of the setting that `path` lies below; empty if there is none.
std::string find_above(const Unit& unit, std::string_view key, const std::string& path) {
  std::string longest;
  for (const Setting& word : unit.words(key))
    if (std::string folder = path_in(word.value);
        is_below(path, folder) && folder.size() > longest.size())
      longest = std::move(folder);
  return longest;
}

bool is_bound(const Unit& unit, const std::string& path) {
  return !find_above(unit, "BindPaths", path).empty() ||
         !find_above(unit, "BindReadOnlyPaths", path).empty();
}

// systemd's sets of system calls, as this system's systemd has them.
using Sets = std::map<std::string, std::vector<std::string>>;

const Sets* known_sets() {
  static const std::optional<Sets> sets = [] -> std::optional<Sets> {
    const auto text = output_of({"systemd-analyze", "--no-pager", "syscall-filter"});
    if (!text) return std::nullopt;
    Sets all;
    std::istringstream lines(*text);
    std::string set;
    for (std::string line; std::getline(lines, line);) {
      const size_t begin = line.find_first_not_of(' ');
      if (begin == line.npos || line[begin] == '#') continue;
      if (begin == 0)
        set = line;
      else
        all[set].push_back(line.substr(begin));
    }
    return all.contains("@default") ? std::optional(all) : std::nullopt;
  }();
  return sets ? &*sets : nullptr;
}

bool has_call(const Sets& sets, const std::string& word, const std::string& call, int depth = 0) {
  if (word == call) return true;
  const auto set = sets.find(word);
  return set != sets.end() && depth < kMostNesting &&
         std::ranges::any_of(
             set->second,
             [&](const std::string& member) { return has_call(sets, member, call, depth + 1); });
}

// SystemCallFilter= begins as a list of what is allowed or of what is not; later ones change it.
class CallFilter {
 public:
  explicit CallFilter(const Unit& unit) {
    for (const Setting* setting : unit.all("SystemCallFilter")) {
      std::string_view value = setting->value;
      const bool is_denied = value.starts_with('~');
      if (is_denied) value.remove_prefix(1);
      if (steps_.empty()) allows_rest_ = is_denied;
      for (std::string& word : split_words(value).value_or(std::vector<std::string>{}))
        steps_.push_back({word.substr(0, word.find(':')), !is_denied});
    }
  }
  bool is_any() const { return !steps_.empty(); }
  bool needs_sets() const {
    return std::ranges::any_of(steps_, [](const Step& s) { return s.word.starts_with('@'); });
  }
  bool allows(const Sets& sets, const std::string& call) const {
    if (!allows_rest_ && has_call(sets, "@default", call)) return true;
    bool is_allowed = allows_rest_;
    for (const Step& step : steps_)
      if (has_call(sets, step.word, call)) is_allowed = step.is_allowed;
    return is_allowed;
  }

 private:
  struct Step {
    std::string word;
    bool is_allowed;
  };
  std::vector<Step> steps_;
  bool allows_rest_ = true;
};

void examine_calls(const Unit& unit, std::vector<Remark>& remarks) {
  const CallFilter filter(unit);
  if (!filter.is_any()) return;
  static const Sets kNone;
  const Sets* sets = known_sets();
  if (sets == nullptr && filter.needs_sets()) {
    remarks.push_back({false,
                       "SystemCallFilter= cannot be judged without systemd-analyze; a system call "
                       "that it forbids would end the service"});
    return;
  }
  std::string missing;
  const auto add = [&](const OurCall& call) {
    if (!filter.allows(sets != nullptr ? *sets : kNone, call.name))
      missing += fmt::format(" {}", call.name);
  };
  std::ranges::for_each(kNeededCalls, add);
  std::ranges::for_each(kDispensableCalls, add);
  const std::string user = unit.last("User").value_or("root");
  if (user == "root" || user == "0") add(kSuperusersCall);
  if (!missing.empty())
    remarks.push_back({true, fmt::format("SystemCallFilter= forbids system calls of DDPMODE; it "
                                         "has to allow{}",
                                         missing)});
}

void examine_families(const Unit& unit, std::vector<Remark>& remarks) {
  bool is_any = false, allows_rest = true, allows_netlink = true;
  for (const Setting* setting : unit.all("RestrictAddressFamilies")) {
    std::string_view value = setting->value;
    const bool is_denied = value.starts_with('~');
    if (is_denied) value.remove_prefix(1);
    if (!is_any) allows_netlink = allows_rest = is_denied;
    is_any = true;
    for (const std::string& word : split_words(value).value_or(std::vector<std::string>{})) {
      if (word == "AF_NETLINK") allows_netlink = !is_denied;
      if (word == "none") allows_netlink = false;
    }
  }
  if (!allows_netlink)
    remarks.push_back({true,
                       "RestrictAddressFamilies= lacks AF_NETLINK, by which the library asks the "
                       "kernel who the peers are: without it nobody is proved; to allow it, give "
                       "the option --netlink"});
}

// In bytes; nothing if there is no limit that can be read.
std::optional<uint64_t> limit_of(const Unit& unit, std::string_view key) {
  std::string text = unit.last(key).value_or("infinity");
  text = text.substr(0, text.find(':'));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  constexpr std::string_view kUnits = "KMGTPE";
  if (end != text.data() + text.size())
    if (const size_t unit_at = kUnits.find(*end); unit_at != kUnits.npos)
      value <<= 10 * (unit_at + 1);
  return value;
}

void examine_limits(const Unit& unit, std::vector<Remark>& remarks) {
  if (limit_of(unit, "LimitAS"))
    remarks.push_back(
        {false, "LimitAS= is set: no shared memory, connections use the user engine"});
  if (const auto size = limit_of(unit, "LimitFSIZE"); size && *size < kRegistryFileSize)
    remarks.push_back({true, fmt::format("LimitFSIZE= is below the {} bytes of the registry",
                                         kRegistryFileSize)});
}

void examine_namespaces(const Unit& unit, std::vector<Remark>& remarks) {
  if (unit.is_on("PrivateNetwork") || unit.last("NetworkNamespacePath"))
    remarks.push_back({false,
                       "it has a network namespace of its own (PrivateNetwork=, "
                       "NetworkNamespacePath=): only peers in there can be proved"});
  if (unit.is_on("PrivateUsers"))
    remarks.push_back({false,
                       "PrivateUsers=: it recognises clients of its own user and of root only, and "
                       "shares no memory with programs outside; a server that speaks first should "
                       "not be enabled"});
  if (unit.is_on("DynamicUser"))
    remarks.push_back({false,
                       "DynamicUser=: nobody else is its user, so it shares memory with nobody "
                       "else; connections use the user engine"});
  if (const auto profile = unit.last("AppArmorProfile"))
    remarks.push_back({false, fmt::format("AppArmorProfile={} may keep {} or the library from it",
                                          *profile, kRegistryFolder)});
}

void examine_files(const Unit& unit, const std::string& library, std::vector<Remark>& remarks) {
  if (const auto cover = find_cover(unit, library))
    remarks.push_back({true, fmt::format("{} hides {} from it", *cover, library)});
  if (const auto cover = find_cover(unit, kRegistryFolder))
    remarks.push_back({true, fmt::format("{} hides {} from it, where programs find each other",
                                         *cover, kRegistryFolder)});
  const std::string denied = find_above(unit, "NoExecPaths", library);
  if (!denied.empty() && find_above(unit, "ExecPaths", library).size() <= denied.size())
    remarks.push_back({true, fmt::format("NoExecPaths={} keeps it from loading {}; ExecPaths= has "
                                         "to name that",
                                         denied, library)});
  for (const char* key : {"ReadOnlyPaths", "ReadOnlyDirectories"}) {
    const std::string closed = find_above(unit, key, kRegistryFolder);
    if (!closed.empty() &&
        find_above(unit, "ReadWritePaths", kRegistryFolder).size() <= closed.size())
      remarks.push_back(
          {true, fmt::format("{}={} keeps it from writing to {}", key, closed, kRegistryFolder)});
  }
}

}  // namespace

std::optional<std::string> find_cover(const Unit& unit, const std::string& path) {
  if (is_bound(unit, path)) return std::nullopt;
  for (const char* key : {"RootDirectory", "RootImage"})
    if (const auto value = unit.last(key); value && *value != "/")
      return fmt::format("{}={}", key, *value);
  for (const char* key : {"InaccessiblePaths", "InaccessibleDirectories", "TemporaryFileSystem"})
    if (const std::string above = find_above(unit, key, path); !above.empty())
      return fmt::format("{}={}", key, above);
  const std::string home = unit.last("ProtectHome").value_or("no");
  const bool is_home_hidden = home == "tmpfs" || (home != "read-only" && unit.is_on("ProtectHome"));
  for (const char* folder : {"/home", "/root", "/run/user"})
    if (is_home_hidden && is_below(path, folder)) return "ProtectHome=";
  for (const char* folder : {"/tmp", "/var/tmp"})
    if (unit.is_on("PrivateTmp") && is_below(path, folder)) return "PrivateTmp=";
  return std::nullopt;
}

std::vector<Remark> examine_sandbox(const Unit& unit, const std::string& library) {
  std::vector<Remark> remarks;
  examine_files(unit, library, remarks);
  examine_calls(unit, remarks);
  examine_families(unit, remarks);
  examine_limits(unit, remarks);
  examine_namespaces(unit, remarks);
  return remarks;
}

}  // namespace ddpsock::shim
