// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How long a cache line takes to another CPU and back: what a machine that moves guests about
// between cores changes under a measurement, and what no figure between two processes can be
// read without.
//
//   line_probe CPU CPU   prints the fastest of its rounds in ns, as a line of its own: what
//                        others run there meanwhile makes rounds slower, and none faster. Status
//                        3: they let it run too little to tell
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr int kTrips = 20, kRounds = 250;
constexpr std::chrono::milliseconds kMost{100};
constexpr double kTooLong = 10'000;  // ns, whatever lies between the CPUs

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
  double fastest = kTooLong;
  const auto begin = Clock::now();
  for (int round = 0; round < kRounds && Clock::now() - begin < kMost; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kTrips; ++i) {
      turn.store(Turn::kAnswerer, std::memory_order_release);
      await_other_than(Turn::kAnswerer);
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    fastest = std::min(fastest, took.count() / kTrips);
  }
  turn.store(Turn::kOver, std::memory_order_release);
  return fastest;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: line_probe CPU CPU\n");
    return 2;
  }
  std::thread other(answer, std::atoi(argv[2]));
  go_to(std::atoi(argv[1]));
  const double ns = ask();
  other.join();
  if (ns >= kTooLong) return 3;
  std::printf("%.1f\n", ns);
}
