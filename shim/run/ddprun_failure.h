// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How ddprun's parts end it.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_FAILURE_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_FAILURE_H_

#include <fmt/core.h>

#include <string>
#include <utility>

namespace ddpsock::shim {

// As env(1).
inline constexpr int kFailed = 125, kStatusNotRunnable = 126, kStatusNotFound = 127;

// Thrown; main() prints it and exits.
struct Failure {
  int status;
  std::string message;
};

template <typename... T>
[[noreturn]] void stop(fmt::format_string<T...> format, T&&... values) {
  throw Failure{kFailed, fmt::format(format, std::forward<T>(values)...)};
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_FAILURE_H_
