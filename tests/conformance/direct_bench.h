// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_CONFORMANCE_DIRECT_BENCH_H_
#define DDPSOCK_TESTS_CONFORMANCE_DIRECT_BENCH_H_

#include <memory>

#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

// Another bench's engines, by the direct way wherever it is open: posts go there first, and every
// other advance() begins there. The way must not show.
std::unique_ptr<Bench> with_direct_way(std::unique_ptr<Bench> inner);

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_DIRECT_BENCH_H_
