// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Results, printed like perftest's tables or as one JSON object a line.
#ifndef DDPSOCK_TOOLS_PERF_REPORT_H_
#define DDPSOCK_TOOLS_PERF_REPORT_H_

#include <string>

#include "tools/perf/exchange.h"
#include "tools/perf/measure.h"
#include "tools/perf/plan.h"

namespace ddpsock::perf {

// Microseconds.
struct LatencyStatistics {
  double least = 0;
  double most = 0;
  double median = 0;
  double mean = 0;
  double deviation = 0;
  double p99 = 0;
  double p99_9 = 0;
};

// Of the times between posts; a ping-pong's half, as one way. perftest's own rules, so that the
// tables compare: the two longest times are left out (of more than two).
LatencyStatistics statistics_of(const Posted& posted, bool is_one_way);

Report report_of(const Plan& plan, uint32_t size, Duration time);

// The line above the table.
std::string header(const Plan& plan);
std::string line(const Plan& plan, uint32_t size, const LatencyStatistics& statistics);
std::string line(const Plan& plan, const Report& report);

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_REPORT_H_
