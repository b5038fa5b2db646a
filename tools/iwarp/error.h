// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_IWARP_ERROR_H_
#define DDPSOCK_TOOLS_IWARP_ERROR_H_

#include <cstring>
#include <optional>
#include <string>

#include "base/result.h"
#include "mpa/startup.h"

namespace ddpsock::iwarp {

// Why a connection did not come about or could not be used, for a person to read.
struct Error {
  std::string text;
  // Set if MPA start-up failed; kRejected brings the peer's private data.
  std::optional<mpa::StartupFailure> startup = {};
};

inline std::unexpected<Error> fail_with(std::string text) {
  return std::unexpected<Error>(Error{.text = std::move(text)});
}
// "connecting: Connection refused". `error` is an errno value.
inline std::unexpected<Error> fail_with(const char* doing, int error) {
  return fail_with(std::string(doing) + ": " + std::strerror(error));
}
inline std::unexpected<Error> fail_with(const mpa::StartupFailure& failure) {
  return std::unexpected<Error>(Error{
      .text = std::string("MPA start-up: ") + mpa::to_text(failure.error), .startup = failure});
}

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_ERROR_H_
