// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The two-ended simulation.
//
//   sim --seed N [-v]          one random scenario, with its story
//   sim --seeds FIRST COUNT    many
//   sim --cuts                 a small exchange with every pair of cuts of either direction
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/sim/world.h"

namespace ddpsock::sim {
namespace {

bool report(const Scenario& s, const Outcome& o) {
  if (o.failure.empty()) return true;
  std::printf("FAILED %s\n  %s\n  replay: sim --seed %llu -v\n", describe(s).c_str(),
              o.failure.c_str(), static_cast<unsigned long long>(s.seed));
  return false;
}

int run_seed(uint64_t seed, bool is_verbose) {
  const Scenario s = make_scenario(seed);
  const Outcome o = run(s, is_verbose);
  std::fputs(o.story.c_str(), stdout);
  return report(s, o) ? 0 : 1;
}

int run_seeds(uint64_t first, uint64_t count) {
  uint64_t failed = 0, healthy = 0, cut_short = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Scenario s = make_scenario(seed);
    const Outcome o = run(s);
    failed += !report(s, o);
    healthy += s.is_healthy();
    cut_short += o.was_cut_short;
  }
  std::printf("%llu seeds, %llu of them healthy, %llu cut short, %llu failed\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(healthy),
              static_cast<unsigned long long>(cut_short), static_cast<unsigned long long>(failed));
  return failed == 0 ? 0 : 1;
}

int run_cuts() {
  uint64_t runs = 0, failed = 0;
  for (const bool has_markers : {false, true}) {
    Scenario s = make_small(has_markers);
    const auto sent = run(s).octets_sent;
    for (size_t direction = 0; direction < 2; ++direction) {
      for (uint64_t first = 1; first < sent[direction]; ++first) {
        for (uint64_t second = first; second < sent[direction]; ++second) {
          s.link.cuts = {};
          s.link.cuts[direction] = {first, second};
          const Outcome o = run(s);
          ++runs;
          if (o.failure.empty()) continue;
          ++failed;
          std::printf("FAILED cuts %llu and %llu of direction %zu%s: %s\n",
                      static_cast<unsigned long long>(first),
                      static_cast<unsigned long long>(second), direction,
                      has_markers ? " with Markers" : "", o.failure.c_str());
        }
      }
    }
  }
  std::printf("%llu pairs of cuts, %llu failed\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(failed));
  return failed == 0 && runs != 0 ? 0 : 1;
}

}  // namespace
}  // namespace ddpsock::sim

int main(int argc, char** argv) {
  using namespace ddpsock::sim;
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (argc >= 3 && std::strcmp(argv[1], "--seed") == 0) {
    return run_seed(number(2), argc > 3 && std::strcmp(argv[3], "-v") == 0);
  }
  if (argc == 4 && std::strcmp(argv[1], "--seeds") == 0) return run_seeds(number(2), number(3));
  if (argc == 2 && std::strcmp(argv[1], "--cuts") == 0) return run_cuts();
  std::fputs("usage: sim --seed N [-v] | --seeds FIRST COUNT | --cuts\n", stderr);
  return 2;
}
