// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A snapshot as text for people: one line a connection, or all there is to know of each.
#ifndef DDPSOCK_TOOLS_STAT_TABLE_H_
#define DDPSOCK_TOOLS_STAT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/stat/snapshot.h"

namespace ddpsock::stat {

inline constexpr size_t kUnlimited = ~size_t{0};

// Lines without their ends. As many columns as `width` has room for, the more important ones first;
// text that does not fit goes below the line where it says that something is wrong. With `before`
// traffic is shown per second since then. Of more than `height` lines the rest is counted.
std::vector<std::string> table(const Snapshot& now, const Snapshot* before, size_t width,
                               size_t height);

std::vector<std::string> details(const Snapshot& now, const Snapshot* before);

}  // namespace ddpsock::stat

#endif  // DDPSOCK_TOOLS_STAT_TABLE_H_
