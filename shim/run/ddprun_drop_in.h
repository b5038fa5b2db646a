// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The drop-in file: written whole or not at all, and recognised later as unchanged by a sum in its
// first line.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_DROP_IN_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_DROP_IN_H_

#include <string>

#include "shim/run/ddprun_root.h"

namespace ddpsock::shim {

enum class DropIn { kNone, kOurs, kEdited };

// `unit` is a service's name.
DropIn look_at_drop_in(const Root& root, const std::string& unit);

// As seen inside the root.
std::string drop_in_path(const std::string& unit);

// False: it was there already, with this very content. `body` is what follows the first lines.
// Throws Failure. REQUIRES: none, or ours.
bool write_drop_in(const Root& root, const std::string& unit, const std::string& body);

// And its folder, if nothing else is in there. Throws Failure. REQUIRES: ours.
void remove_drop_in(const Root& root, const std::string& unit);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_DROP_IN_H_
