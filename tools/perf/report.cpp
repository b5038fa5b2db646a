// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ddpsock::perf {
namespace {

constexpr size_t kTail = 2;
constexpr double kNsPerUs = 1e3;
constexpr double kNsPerSecond = 1e9;
constexpr double kMib = 1 << 20;

double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(static_cast<double>(sorted.size()) * share));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

double median(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

LatencyStatistics statistics_of(const Posted& posted, bool is_one_way) {
  std::vector<double> us;
  for (size_t i = 1; i < posted.size(); ++i) {
    const auto ns = static_cast<double>((posted[i] - posted[i - 1]).ns);
    us.push_back(ns / kNsPerUs / (is_one_way ? 2 : 1));
  }
  if (us.empty()) return {};
  std::sort(us.begin(), us.end());
  if (us.size() > kTail) us.resize(us.size() - kTail);
  const auto count = static_cast<double>(us.size());
  const double mean = std::accumulate(us.begin(), us.end(), 0.0) / count;
  double squares = 0;
  for (double value : us) squares += (value - mean) * (value - mean);
  return {.least = us.front(),
          .most = us.back(),
          .median = median(us),
          .mean = mean,
          .deviation = std::sqrt(squares / count),
          .p99 = quantile(us, 0.99),
          .p99_9 = quantile(us, 0.999)};
}

Report report_of(const Plan& plan, uint32_t size, Duration time) {
  const double seconds = std::max<double>(static_cast<double>(time.ns), 1) / kNsPerSecond;
  const double messages = plan.iterations;
  return {.size = size,
          .iterations = plan.iterations,
          .mib_per_second = messages * size / seconds / kMib,
          .mega_messages_per_second = messages / seconds / 1e6};
}

std::string header(const Plan& plan) {
  if (plan.metric == Metric::kBandwidth) {
    return " #bytes     #iterations    BW average[MB/sec]   MsgRate[Mpps]\n";
  }
  return " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
         "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n";
}

std::string line(const Plan& plan, uint32_t size, const LatencyStatistics& s) {
  const char* const format =
      plan.is_json
          ? "{{\"test\": \"{0}\", \"bytes\": {1}, \"iterations\": {2}, \"t_min_us\": {3:.3f}, "
            "\"t_max_us\": {4:.3f}, \"t_typical_us\": {5:.3f}, \"t_avg_us\": {6:.3f}, "
            "\"t_stdev_us\": {7:.3f}, \"p99_us\": {8:.3f}, \"p99_9_us\": {9:.3f}}}\n"
          : " {1:<7} {2:<10}     {3:<11.2f}    {4:<11.2f}  {5:<15.2f}    {6:<11.2f}    {7:<13.2f}  "
            " "
            "{8:<20.2f}   {9:.2f}\n";
  return fmt::format(fmt::runtime(format), to_text(plan), size, plan.iterations, s.least, s.most,
                     s.median, s.mean, s.deviation, s.p99, s.p99_9);
}

std::string line(const Plan& plan, const Report& r) {
  const char* const format =
      plan.is_json ? "{{\"test\": \"{0}\", \"bytes\": {1}, \"iterations\": {2}, \"mib_per_s\": "
                     "{3:.3f}, \"mega_messages_per_s\": {4:.6f}}}\n"
                   : " {1:<7}    {2:<10}     {3:<18.2f}   {4:.6f}\n";
  return fmt::format(fmt::runtime(format), to_text(plan), r.size, r.iterations, r.mib_per_second,
                     r.mega_messages_per_second);
}

}  // namespace ddpsock::perf
