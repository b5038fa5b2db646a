// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a service's own restrictions do to a library that is preloaded into it.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_SANDBOX_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_SANDBOX_H_

#include <optional>
#include <string>
#include <vector>

#include "shim/run/ddprun_unit.h"

namespace ddpsock::shim {

struct Remark {
  bool is_obstacle;  // DDPMODE cannot be had, or the service would be harmed; otherwise to be known
  std::string text;
};

// `library` and the registry's folder as the service would name them.
std::vector<Remark> examine_sandbox(const Unit& unit, const std::string& library);

// Does the service see what this system has at `path`? What stands in the way, else nothing.
std::optional<std::string> find_cover(const Unit& unit, const std::string& path);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_SANDBOX_H_
