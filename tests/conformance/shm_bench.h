// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_CONFORMANCE_SHM_BENCH_H_
#define DDPSOCK_TESTS_CONFORMANCE_SHM_BENCH_H_

#include <memory>

#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

// Segments in memory that both ends map; their sockets on 127.0.0.1 carry bells and the end.
std::unique_ptr<Bench> shm();

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_SHM_BENCH_H_
