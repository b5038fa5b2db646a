// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One test from the first connection to the last: what perftest's main() of that test does.
#ifndef DDPSOCK_TOOLS_PERF_RUN_H_
#define DDPSOCK_TOOLS_PERF_RUN_H_

#include <functional>

#include "tools/iwarp/listener.h"
#include "tools/perf/test.h"

namespace ddpsock::perf {

// `listener`: where a server's client comes to; nullptr for a client. `print` gets the results line
// by line. REQUIRES: a test as options.h makes it.
Status<iwarp::Error> run(const Test& test, iwarp::Listener* listener,
                         const std::function<void(const std::string&)>& print);

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_RUN_H_
