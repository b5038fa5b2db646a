// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/plan.h"

namespace ddpsock::perf {

const char* to_text(Verb verb) {
  switch (verb) {
    case Verb::kSend:
      return "send";
    case Verb::kWrite:
      return "write";
    case Verb::kRead:
      return "read";
  }
  return "?";
}

std::string to_text(const Plan& plan) {
  return std::string(to_text(plan.verb)) + (plan.metric == Metric::kLatency ? "-lat" : "-bw");
}

}  // namespace ddpsock::perf
