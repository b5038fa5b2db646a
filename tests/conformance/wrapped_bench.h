// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Wrappers around another bench's engines. A wrapper must not show.
#ifndef DDPSOCK_TESTS_CONFORMANCE_WRAPPED_BENCH_H_
#define DDPSOCK_TESTS_CONFORMANCE_WRAPPED_BENCH_H_

#include <memory>

#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

using MakeBench = std::unique_ptr<Bench> (*)();

std::unique_ptr<Bench> with_trace(std::unique_ptr<Bench> inner);
std::unique_ptr<Bench> with_pcap(std::unique_ptr<Bench> inner);
std::unique_ptr<Bench> with_idle_fault(std::unique_ptr<Bench> inner);

// As a plain function, for the table of kinds.
template <std::unique_ptr<Bench> (*Wrap)(std::unique_ptr<Bench>), MakeBench Inner>
std::unique_ptr<Bench> wrapped() {
  return Wrap(Inner());
}

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_WRAPPED_BENCH_H_
