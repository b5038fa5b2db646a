// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_PERF_OPTIONS_H_
#define DDPSOCK_TOOLS_PERF_OPTIONS_H_

#include <expected>

#include "tools/perf/plan.h"

namespace ddpsock::perf {

// The test that a command line asks for, with perftest's defaults filled in. Otherwise what the
// program is to exit with; help or the error has been printed.
std::expected<Plan, int> parse_options(int argc, char** argv);

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_OPTIONS_H_
