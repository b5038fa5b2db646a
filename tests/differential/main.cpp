// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One stream of random work over every carrier of queue pairs.
//
//   differential --seed N [-v]          one script, with what each saw of it
//   differential --seeds FIRST COUNT    many
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/conformance/direct_bench.h"
#include "tests/conformance/loopback_bench.h"
#include "tests/conformance/shm_bench.h"
#include "tests/conformance/user_bench.h"
#include "tests/differential/player.h"

namespace ddpsock::differential {
namespace {

std::unique_ptr<conformance::Bench> direct_shm() {
  return conformance::with_direct_way(conformance::shm());
}

// The first is what the others are compared with.
constexpr conformance::Kind kKinds[] = {
    {"user", conformance::user_tcp},
    {"shm", conformance::shm},
    {"direct_shm", direct_shm},
    {"loopback", conformance::loopback_bytes},
    {"loopback_segments", conformance::loopback_segments},
};

void print_difference(const char* name, const Observed& wire, const Observed& other) {
  const auto [at, there] = std::ranges::mismatch(wire.lines, other.lines);
  std::printf("  %s: %s\n  %s: %s\n", kKinds[0].name,
              at == wire.lines.end() ? "nothing" : at->c_str(), name,
              there == other.lines.end() ? "nothing" : there->c_str());
}

bool run_seed(uint64_t seed, bool is_verbose) {
  const Script script = make_script(seed);
  if (is_verbose) std::fputs(describe(script).c_str(), stdout);
  // Of what makes and joins the engines.
  const auto has_failure = [] {
    return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
  };
  bool is_right = !has_failure();
  Observed wire;
  for (const conformance::Kind& kind : kKinds) {
    Observed seen = play(script, kind);
    if (is_verbose)
      for (const std::string& line : seen.lines) std::printf("%s: %s\n", kind.name, line.c_str());
    const bool is_first = &kind == kKinds;
    if (is_first) wire = seen;
    const bool is_same = seen.lines == wire.lines;
    if (!seen.broken.empty() || !is_same) {
      std::printf("FAILED seed %llu, %s: %s\n", static_cast<unsigned long long>(seed), kind.name,
                  seen.broken.empty() ? "differs" : seen.broken.c_str());
      if (!is_same) print_difference(kind.name, wire, seen);
      is_right = false;
    }
  }
  return is_right && !has_failure();
}

int run_seeds(uint64_t first, uint64_t count) {
  uint64_t failed = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) failed += !run_seed(seed, false);
  std::printf("%llu seeds, %llu failed\n", static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(failed));
  return failed == 0 && count != 0 ? 0 : 1;
}

}  // namespace
}  // namespace ddpsock::differential

int main(int argc, char** argv) {
  using namespace ddpsock::differential;
  testing::InitGoogleTest(&argc, argv);
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (argc >= 3 && std::strcmp(argv[1], "--seed") == 0) {
    return run_seed(number(2), argc > 3 && std::strcmp(argv[3], "-v") == 0) ? 0 : 1;
  }
  if (argc == 4 && std::strcmp(argv[1], "--seeds") == 0) return run_seeds(number(2), number(3));
  std::fputs("usage: differential --seed N [-v] | --seeds FIRST COUNT\n", stderr);
  return 2;
}
