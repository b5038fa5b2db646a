// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstdio>
#include <optional>

#include "tools/perf/options.h"
#include "tools/perf/run.h"

namespace ddpsock::perf {
namespace {

Status<iwarp::Error> start(const Plan& plan) {
  const auto print = [](const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  };
  if (plan.is_client()) return run(plan, nullptr, print);
  const auto address = iwarp::Address::resolve(plan.host, plan.port);
  if (!address) return fail(address.error());
  auto listener = iwarp::Listener::open(*address);
  if (!listener) return fail(listener.error());
  std::fprintf(stderr, "ddp-perf: %s: waiting on port %d\n", to_text(plan).c_str(),
               listener->port());
  return run(plan, &*listener, print);
}

}  // namespace
}  // namespace ddpsock::perf

int main(int argc, char** argv) {
  const auto plan = ddpsock::perf::parse_options(argc, argv);
  if (!plan) return plan.error();
  const auto done = ddpsock::perf::start(*plan);
  if (done) return 0;
  std::fprintf(stderr, "ddp-perf: %s: %s\n", to_text(*plan).c_str(), done.error().text.c_str());
  return 1;
}
