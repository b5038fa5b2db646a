// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One test from the first connection to the last: what perftest's main() of that test does.
#ifndef DDPSOCK_TOOLS_PERF_RUN_H_
#define DDPSOCK_TOOLS_PERF_RUN_H_

#include <functional>

#include "tools/iwarp/tcp.h"
#include "tools/perf/plan.h"

namespace ddpsock::perf {

// Gets the results line by line.
using Printer = std::function<void(const std::string&)>;

// `listener`: where a server's client comes to; nullptr for a client. REQUIRES: a plan as
// options.h makes it.
Status<iwarp::Error> run(const Plan& plan, iwarp::Listener* listener, const Printer& print);

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_RUN_H_
