// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_CONFORMANCE_USER_BENCH_H_
#define DDPSOCK_TESTS_CONFORMANCE_USER_BENCH_H_

#include <memory>

#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

// Over TCP connections of 127.0.0.1, started by real MPA frames.
std::unique_ptr<Bench> user_tcp();

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_USER_BENCH_H_
