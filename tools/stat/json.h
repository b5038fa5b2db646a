// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_STAT_JSON_H_
#define DDPSOCK_TOOLS_STAT_JSON_H_

#include <string>

#include "tools/stat/snapshot.h"

namespace ddpsock::stat {

// One object on one line, without its end. man/ddpstat.1 names the members; they only ever become
// more.
std::string to_json(const Snapshot& snapshot);

}  // namespace ddpsock::stat

#endif  // DDPSOCK_TOOLS_STAT_JSON_H_
