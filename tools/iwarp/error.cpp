// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/error.h"

#include <cstring>

namespace ddpsock::iwarp {

std::unexpected<Error> fail_with(const char* doing, int error) {
  return fail_with(std::string(doing) + ": " + std::strerror(error));
}

std::unexpected<Error> fail_with(const mpa::StartupFailure& failure) {
  return std::unexpected<Error>(Error{
      .text = std::string("MPA start-up: ") + mpa::to_text(failure.error), .startup = failure});
}

}  // namespace ddpsock::iwarp
