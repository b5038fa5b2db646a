// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A line a check: ok, missing, or what cannot be known.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_REPORT_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_REPORT_H_

#include <fmt/core.h>

#include <string>
#include <utility>

namespace ddpsock::shim {

class Report {
 public:
  template <typename... T>
  void ok(const char* what, fmt::format_string<T...> format, T&&... values) {
    print("ok", what, fmt::format(format, std::forward<T>(values)...));
  }
  template <typename... T>
  void missing(const char* what, fmt::format_string<T...> format, T&&... values) {
    print("missing", what, fmt::format(format, std::forward<T>(values)...));
    is_missing_ = true;
  }
  template <typename... T>
  void unknown(const char* what, fmt::format_string<T...> format, T&&... values) {
    print("cannot know", what, fmt::format(format, std::forward<T>(values)...));
  }
  // 1: something is missing.
  int status() const { return is_missing_ ? 1 : 0; }

 private:
  static void print(const char* verdict, const char* what, const std::string& text) {
    fmt::print("{:<11} {:<9} {}\n", verdict, what, text);
    fflush(stdout);  // what comes next may take seconds
  }
  bool is_missing_ = false;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_REPORT_H_
