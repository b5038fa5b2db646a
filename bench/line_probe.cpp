// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How long a cache line takes to another CPU and back: what a machine that moves guests about
// between cores changes under a measurement, and what no figure between two processes can be
// read without.
//
//   line_probe CPU CPU   prints the median of its rounds in ns, as a line of its own
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int kTrips = 200;
constexpr size_t kRounds = 25;
constexpr std::chrono::milliseconds kMost{100};  // beside busy processes

enum class Turn : uint8_t { kAsker, kAnswerer, kOver };
alignas(128) std::atomic<Turn> turn{Turn::kAsker};

void go_to(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(cpu), &one);
  if (pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0) return;
  std::fprintf(stderr, "line_probe: there is no CPU %d\n", cpu);
  std::exit(1);
}

Turn await_other_than(Turn last) {
  for (;;) {
    if (const Turn now = turn.load(std::memory_order_acquire); now != last) return now;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
}

void answer(int cpu) {
  go_to(cpu);
  while (await_other_than(Turn::kAsker) != Turn::kOver)
    turn.store(Turn::kAsker, std::memory_order_release);
}

double ask() {
  using Clock = std::chrono::steady_clock;
  std::vector<double> rounds;
  for (const auto begin = Clock::now(); rounds.size() < kRounds && Clock::now() - begin < kMost;) {
    const auto start = Clock::now();
    for (int i = 0; i < kTrips; ++i) {
      turn.store(Turn::kAnswerer, std::memory_order_release);
      await_other_than(Turn::kAnswerer);
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    rounds.push_back(took.count() / kTrips);
  }
  turn.store(Turn::kOver, std::memory_order_release);
  std::ranges::nth_element(rounds, rounds.begin() + static_cast<ptrdiff_t>(rounds.size() / 2));
  return rounds[rounds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: line_probe CPU CPU\n");
    return 2;
  }
  std::thread other(answer, std::atoi(argv[2]));
  go_to(std::atoi(argv[1]));
  std::printf("%.1f\n", ask());
  other.join();
}
