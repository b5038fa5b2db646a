// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the ends of a measured connection count, and how the client prints it. Rates and times leave
// the first 50 ms out.
#ifndef DDPSOCK_BENCH_TIMING_H_
#define DDPSOCK_BENCH_TIMING_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "bench/options.h"
#include "bench/peer.h"

namespace ddpsock::bench {

inline constexpr uint64_t kWarmUpNs = 50'000'000;

// The server's, at the end.
struct Report {
  uint64_t bytes;
  uint64_t ns;
  uint64_t cpu_ns;
};

// Counts what arrives once the connection is warm.
class Meter {
 public:
  void add(size_t bytes) {
    total_ += bytes;
    last_ = now_ns();
    if (warm_at_ == 0 && last_ - start_ >= kWarmUpNs) {
      warm_bytes_ = total_;
      warm_at_ = last_;
    }
  }

  // Of the warm part, unless that is so short that it says nothing.
  Report report() const {
    const uint64_t cpu = cpu_ns() - start_cpu_;
    if (warm_at_ == 0 || last_ - warm_at_ < kWarmUpNs) return {total_, last_ - start_, cpu};
    return {total_ - warm_bytes_, last_ - warm_at_, cpu};
  }

 private:
  uint64_t start_ = now_ns(), start_cpu_ = cpu_ns(), last_ = start_;
  uint64_t total_ = 0, warm_bytes_ = 0, warm_at_ = 0;
};

// Round trips or transfers, and when the last of them ended.
struct Times {
  explicit Times(const Options& options)
      : start(now_ns()), stop(start + static_cast<uint64_t>(options.seconds * 1e9)), last(start) {
    ns.reserve(4 << 20);
  }

  bool is_over(const Options& options) const {
    return done >= options.count || last >= stop || ns.size() == ns.capacity();
  }

  void add() {
    const uint64_t now = now_ns();
    done++;
    if (last - start >= kWarmUpNs) ns.push_back(now - last);
    last = now;
  }

  double at_quantile_us(double q) {
    // So short a run has no warm part; its average has to do.
    if (ns.empty()) ns.push_back((last - start) / std::max<uint64_t>(done, 1));
    const auto at =
        std::min(ns.size() - 1, static_cast<size_t>(q * static_cast<double>(ns.size())));
    std::nth_element(ns.begin(), ns.begin() + static_cast<ptrdiff_t>(at), ns.end());
    return static_cast<double>(ns[at]) / 1e3;
  }

  uint64_t start, stop, last;
  uint64_t done = 0;
  std::vector<uint64_t> ns;
};

inline void print_cpu(uint64_t client_ns, const Report& report, uint64_t messages) {
  std::printf("\"messages\": %llu, \"client_cpu_us\": %.3f, \"server_cpu_us\": %.3f}\n",
              static_cast<unsigned long long>(messages),
              static_cast<double>(client_ns) / 1e3 / static_cast<double>(messages),
              static_cast<double>(report.cpu_ns) / 1e3 / static_cast<double>(messages));
}

// `ways` is 2 where a time is one way.
inline void print_times(Times& times, double ways, uint64_t client_ns, const Report& report) {
  std::printf("{\"p50_us\": %.3f, \"p99_us\": %.3f, ", times.at_quantile_us(0.5) / ways,
              times.at_quantile_us(0.99) / ways);
  print_cpu(client_ns, report, times.done);
}

inline void print_rate(const Report& report, uint64_t client_ns, uint64_t messages) {
  std::printf("{\"gbit_s\": %.6f, ",
              static_cast<double>(report.bytes) * 8 / static_cast<double>(report.ns));
  print_cpu(client_ns, report, messages);
}

}  // namespace ddpsock::bench

#endif  // DDPSOCK_BENCH_TIMING_H_
