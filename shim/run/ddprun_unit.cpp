// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_unit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <map>
#include <sstream>

#include "shim/run/ddprun_failure.h"

namespace ddpsock::shim {
namespace {

constexpr std::string_view kSuffix = ".service";
constexpr std::string_view kBlank = " \t\r\n";
// systemd.unit(5), the first first.
constexpr std::array<const char*, 12> kFolders = {
    "/etc/systemd/system.control",   "/run/systemd/system.control",  "/run/systemd/transient",
    "/run/systemd/generator.early",  kAdministratorsUnits,           "/etc/systemd/system.attached",
    "/run/systemd/system",           "/run/systemd/system.attached", "/run/systemd/generator",
    "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",      "/run/systemd/generator.late"};
// Where /usr is not merged.
constexpr const char* kOldFolder = "/lib/systemd/system";

std::vector<std::string> unit_folders(const Root& root) {
  std::vector<std::string> folders(kFolders.begin(), kFolders.end());
  if (root.real_path(kOldFolder) != root.real_path("/usr/lib/systemd/system"))
    folders.insert(folders.end() - 1, kOldFolder);
  return folders;
}

std::string trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) - begin + 1));
}

// foo@bar.service is made from foo@.service. Empty: `name` is no instance.
std::string template_of(const std::string& name) {
  const size_t at = name.find('@');
  if (at == name.npos || name.substr(at + 1) == kSuffix) return "";
  return name.substr(0, at + 1) + std::string(kSuffix);
}

// Whose drop-ins apply to `name`, the most specific first.
std::vector<std::string> names_of_drop_ins(const std::string& name) {
  std::vector<std::string> names{name};
  if (const std::string of = template_of(name); !of.empty()) names.push_back(of);
  for (const std::string& exact : std::vector(names)) {
    const std::string stem = exact.substr(0, exact.find_first_of("@."));
    for (size_t dash = stem.rfind('-'); dash != stem.npos && dash > 0;
         dash = stem.rfind('-', dash - 1))
      names.push_back(stem.substr(0, dash + 1) + std::string(kSuffix));
  }
  names.emplace_back(kSuffix.substr(1));
  return names;
}

bool is_masked(const Root& root, const std::string& path) {
  const std::string real = root.real_path(path);
  if (real == "/dev/null") return true;
  struct stat st;
  const base::UniqueFd fd = root.open(path, O_PATH);
  return fd.is_valid() && fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
}

std::string find_unit_file(const Root& root, const std::string& name) {
  for (const std::string& folder : unit_folders(root))
    if (const std::string path = folder + "/" + name; root.exists(path)) return path;
  return "";
}

// By file name: the one that counts.
std::map<std::string, std::string> find_drop_ins(const Root& root,
                                                 const std::vector<std::string>& names) {
  std::map<std::string, std::string> found;
  for (const std::string& name : names)
    for (const std::string& folder : unit_folders(root))
      for (const std::string& file : root.list(folder + "/" + name + ".d"))
        if (file.ends_with(".conf")) found.try_emplace(file, folder + "/" + name + ".d/" + file);
  return found;
}

void append_file(const Root& root, const std::string& path, bool is_after_ours, Unit& unit) {
  const auto text = root.read(path);
  if (!text) stop("{}: {}", root.outside(path), strerror(errno));
  for (Setting& s : parse_service(*text, path)) {
    s.is_after_ours = is_after_ours;
    unit.settings.push_back(std::move(s));
  }
}

// What a backslash and the character at `at`, which is moved behind it, mean.
char unescape(std::string_view text, size_t& at) {
  constexpr std::string_view kFrom = "abfnrtvs", kTo = "\a\b\f\n\r\t\v ";
  const char c = text[at++];
  if (const size_t i = kFrom.find(c); i != kFrom.npos) return kTo[i];
  if (c != 'x' || at + 2 > text.size()) return c;
  unsigned char value = 0;
  const auto [end, error] = std::from_chars(&text[at], text.data() + at + 2, value, 16);
  if (error != std::errc{} || end != text.data() + at + 2) return c;
  at += 2;
  return static_cast<char>(value);
}

}  // namespace

std::optional<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  char quote = '\0';
  bool is_in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at++];
    const bool is_blank = kBlank.find(c) != kBlank.npos && quote == '\0';
    if (is_blank) {
      is_in_word = false;
      continue;
    }
    if (!is_in_word) words.emplace_back();
    is_in_word = true;
    if (quote == '\0' && (c == '"' || c == '\''))
      quote = c;
    else if (quote != '\0' && c == quote)
      quote = '\0';
    else if (c == '\\' && at < text.size())
      words.back() += unescape(text, at);
    else
      words.back() += c;
  }
  if (quote != '\0') return std::nullopt;
  return words;
}

std::string quote_word(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string escape_specifiers(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '%' ? "%%" : std::string(1, c);
  return out;
}

std::vector<Setting> parse_service(const std::string& text, const std::string& file) {
  std::vector<Setting> settings;
  std::istringstream lines(text);
  bool is_service = false;
  std::string whole;
  for (std::string line; std::getline(lines, line);) {
    const std::string part = trim(line);
    // Comments may stand between the lines of one setting.
    if (part.starts_with('#') || part.starts_with(';')) continue;
    whole += part;
    if (whole.ends_with('\\') && !lines.eof()) {
      whole.back() = ' ';
      continue;
    }
    const std::string setting = std::exchange(whole, "");
    if (setting.starts_with('[')) is_service = setting == "[Service]";
    const size_t equals = setting.find('=');
    if (!is_service || setting.starts_with('[') || equals == setting.npos) continue;
    settings.push_back(
        {trim(setting.substr(0, equals)), trim(setting.substr(equals + 1)), file, false});
  }
  return settings;
}

std::optional<std::string> Unit::last(std::string_view key) const {
  const auto found = std::ranges::find(settings.rbegin(), settings.rend(), key, &Setting::key);
  if (found == settings.rend() || found->value.empty()) return std::nullopt;
  return found->value;
}

bool Unit::is_on(std::string_view key) const {
  std::string value = last(key).value_or("no");
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return tolower(c); });
  return value != "no" && value != "n" && value != "false" && value != "f" && value != "off" &&
         value != "0";
}

std::vector<const Setting*> Unit::all(std::string_view key) const {
  std::vector<const Setting*> found;
  for (const Setting& s : settings) {
    if (s.key != key) continue;
    s.value.empty() ? found.clear() : found.push_back(&s);
  }
  return found;
}

std::vector<Setting> Unit::words(std::string_view key) const {
  std::vector<Setting> found;
  for (const Setting* s : all(key)) {
    const auto words = split_words(s->value);
    if (!words) stop("{}: {}: a quote is not closed", s->file, key);
    for (const std::string& word : *words)
      found.push_back({s->key, word, s->file, s->is_after_ours});
  }
  return found;
}

std::string complete_unit_name(const std::string& given) {
  constexpr std::array<std::string_view, 10> kOthers = {
      ".socket", ".device", ".mount", ".automount", ".swap",
      ".target", ".path",   ".timer", ".slice",     ".scope"};
  for (const std::string_view other : kOthers)
    if (given.ends_with(other)) stop("{}: only services can be enabled; name that", given);
  const std::string name = given.ends_with(kSuffix) ? given : given + std::string(kSuffix);
  const auto is_odd = [](unsigned char c) {
    return isalnum(c) == 0 && std::strchr(":-_.\\@", c) == nullptr;
  };
  if (name.size() == kSuffix.size() || name.size() > 255 || name.starts_with('@') ||
      name.starts_with('.') || std::ranges::any_of(name, is_odd))
    stop("'{}' is not the name of a service", given);
  return name;
}

Unit load_unit(const Root& root, const std::string& name) {
  Unit unit;
  unit.name = name;
  unit.path = find_unit_file(root, name);
  const std::string of = template_of(name);
  if (unit.path.empty() && !of.empty()) unit.path = find_unit_file(root, of);
  if (unit.path.empty()) stop("there is no unit {} in {}", name, root.outside("/"));
  if (is_masked(root, unit.path)) stop("{} is masked ({})", name, root.outside(unit.path));
  std::vector<std::string> names = names_of_drop_ins(name);
  const std::string real = root.real_path(unit.path);
  const std::string real_name = real.substr(real.rfind('/') + 1);
  if (real_name != name && real_name != of && real_name.ends_with(kSuffix)) {
    unit.name = real_name;
    std::vector<std::string> more = names_of_drop_ins(real_name);
    names.insert(names.begin(), more.begin(), more.end());
  }
  append_file(root, unit.path, false, unit);
  for (const auto& [file, path] : find_drop_ins(root, names))
    if (file != kDropIn && !is_masked(root, path)) append_file(root, path, file > kDropIn, unit);
  return unit;
}

}  // namespace ddpsock::shim
