// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A systemd service as its files say: the unit's own, then drop-ins, in systemd.unit(5)'s order.
// The syntax is systemd.syntax(7)'s; specifiers (%i) stay as they are written.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_UNIT_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_UNIT_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shim/run/ddprun_root.h"

namespace ddpsock::shim {

// Ours, in every unit; left out where settings are read.
inline constexpr const char* kDropIn = "50-ddpsock.conf";
inline constexpr const char* kAdministratorsUnits = "/etc/systemd/system";

struct Setting {
  std::string key, value;
  std::string file;
  bool is_after_ours = false;  // of a drop-in that goes before what ours says
};

class Unit {
 public:
  // Of [Service], in the order in which they take effect.
  std::string name;  // of the unit itself, where what was asked for is an alias
  std::string path;
  std::vector<Setting> settings;

  // The last value, or nothing; an empty one is nothing.
  std::optional<std::string> last(std::string_view key) const;
  bool is_on(std::string_view key) const;
  // Of a setting that may be repeated; an empty value takes back what was before it.
  std::vector<const Setting*> all(std::string_view key) const;
  // Their words, each as if it were a setting of its own.
  std::vector<Setting> words(std::string_view key) const;
};

// "redis" or "redis.service", "foo@.service", "foo@bar". Throws Failure: no service's name.
std::string complete_unit_name(const std::string& given);

// Throws Failure: there is none, it is masked, or it is malformed.
Unit load_unit(const Root& root, const std::string& name);

// Text of a unit, as settings of its [Service] section.
std::vector<Setting> parse_service(const std::string& text, const std::string& file);

// Splits at blanks, and takes quotes and escapes away. Nothing: a quote is open at the end.
std::optional<std::vector<std::string>> split_words(std::string_view text);
// In quotes, as one word; specifiers in `text` are kept.
std::string quote_word(std::string_view text);
// Text that is to mean itself.
std::string escape_specifiers(std::string_view text);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_UNIT_H_
