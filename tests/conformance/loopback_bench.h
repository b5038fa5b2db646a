// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_CONFORMANCE_LOOPBACK_BENCH_H_
#define DDPSOCK_TESTS_CONFORMANCE_LOOPBACK_BENCH_H_

#include <memory>

#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

std::unique_ptr<Bench> loopback_bytes();
std::unique_ptr<Bench> loopback_segments();

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_LOOPBACK_BENCH_H_
