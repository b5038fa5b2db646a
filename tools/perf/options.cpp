// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace ddpsock::perf {
namespace {

constexpr int kUsage = 2;
constexpr uint32_t kDefaultLatencySize = 2;
constexpr uint32_t kDefaultBandwidthSize = 65536;
constexpr uint32_t kDefaultIterations = 1000;
constexpr uint32_t kDefaultWrites = 5000;
constexpr uint32_t kDefaultSendDepth = 128;
constexpr uint32_t kDefaultReceiveDepth = 512;
constexpr uint16_t kMaxReads = 128;
constexpr int kLastPower = 23;  // of the sizes of a sweep
constexpr uint32_t kMaxUlpdu = 65532;

struct Values {
  uint32_t size = 0;
  bool is_without_crc = false;
  uint32_t timeout_s = 30;
  uint32_t wait_s = 600;
};

struct Command {
  const char* name;
  const char* help;
  Verb verb;
  Metric metric;
};
constexpr Command kCommands[] = {
    {"send-lat", "Sends in turns, as ib_send_lat", Verb::kSend, Metric::kLatency},
    {"send-bw", "a stream of Sends, as ib_send_bw", Verb::kSend, Metric::kBandwidth},
    {"write-lat", "Writes in turns, as ib_write_lat", Verb::kWrite, Metric::kLatency},
    {"write-bw", "a stream of Writes, as ib_write_bw", Verb::kWrite, Metric::kBandwidth},
    {"read-lat", "one Read after the other, as ib_read_lat", Verb::kRead, Metric::kLatency},
    {"read-bw", "many Reads at a time, as ib_read_bw", Verb::kRead, Metric::kBandwidth},
};

void declare(CLI::App& app, Plan& plan, Values& values) {
  app.add_option("HOST", plan.host, "the server; without it this end is the server");
  app.add_option("-p,--port", plan.port, "TCP port (18515)");
  auto* size = app.add_option("-s,--size", values.size, "bytes of a message")
                   ->check(CLI::Range(1u, kMaxSize));
  app.add_flag("-a,--all", plan.is_sweep, "all sizes from 2 to 2^23")->excludes(size);
  app.add_option("-n,--iters", plan.iterations, "messages of each size")
      ->check(CLI::Range(kMinIterations, kMaxIterations));
  app.add_option("-t,--tx-depth", plan.send_depth, "requests under way")
      ->check(CLI::Range(1u, kMaxDepth));
  app.add_option("-r,--rx-depth", plan.receive_depth, "receives posted (send tests)")
      ->check(CLI::Range(kMinReceiveDepth, kMaxDepth));
  app.add_option("-o,--outs", plan.reads, "outstanding Reads (read tests)")
      ->check(CLI::Range(uint16_t{1}, kMaxReads));
  app.add_flag("-e,--events", plan.is_sleeping, "sleep while waiting, do not spin");
  app.add_flag("--no-crc", values.is_without_crc, "no CRCs, if the peer agrees");
  app.add_option("--max-ulpdu", plan.max_ulpdu,
                 "largest ULPDU to send, for peers known to take it (one TCP segment's worth)")
      ->check(CLI::Range(128u, kMaxUlpdu));
  app.add_flag("--json", plan.is_json, "one JSON object a line instead of a table");
  app.add_option("--timeout", values.timeout_s, "seconds that the peer may be silent (30)")
      ->check(CLI::Range(1u, 3600u));
  app.add_option("--wait", values.wait_s, "seconds that a server waits for its client (600)")
      ->check(CLI::Range(1u, 86400u));
}

void complete(Plan& plan, const Values& values) {
  const bool is_latency = plan.metric == Metric::kLatency;
  if (plan.is_sweep) {
    for (int power = 1; power <= kLastPower; ++power) plan.sizes.push_back(1u << power);
  } else if (values.size != 0) {
    plan.sizes = {values.size};
  } else {
    plan.sizes = {is_latency ? kDefaultLatencySize : kDefaultBandwidthSize};
  }
  if (plan.iterations == 0) {
    plan.iterations =
        plan.is(Verb::kWrite, Metric::kBandwidth) ? kDefaultWrites : kDefaultIterations;
  }
  if (plan.send_depth == 0) plan.send_depth = kDefaultSendDepth;
  if (plan.receive_depth == 0) plan.receive_depth = kDefaultReceiveDepth;
  // As perftest lowers them.
  plan.send_depth = std::min(plan.send_depth, plan.iterations);
  plan.receive_depth = std::min(plan.receive_depth, plan.iterations);
  // Nor does it take an odd number. Both count the thirds of this.
  if (!plan.is_sweep) plan.receive_depth += plan.receive_depth % 2;
  if (plan.verb == Verb::kRead && plan.reads == 0) plan.reads = kMaxReads;
  if (plan.verb != Verb::kRead) plan.reads = 0;
  plan.wants_crc = !values.is_without_crc;
  plan.patience = Duration::from_ms(int64_t{values.timeout_s} * 1000);
  plan.client_wait = Duration::from_ms(int64_t{values.wait_s} * 1000);
}

}  // namespace

std::expected<Plan, int> parse_options(int argc, char** argv) {
  CLI::App app("Measures RDMA over TCP as perftest does, with perftest (-R) or itself as the peer.",
               "ddp-perf");
  app.set_version_flag("--version", "ddp-perf " DDPSOCK_VERSION);
  app.require_subcommand(1);
  Plan plan;
  Values values;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    declare(*sub, plan, values);
    if (command.metric == Metric::kBandwidth && command.verb != Verb::kSend) {
      sub->add_flag("-b,--bidirectional", plan.is_bidirectional, "both ends at the same time");
    }
    sub->callback([&plan, command] {
      plan.verb = command.verb;
      plan.metric = command.metric;
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return std::unexpected(app.exit(e) == 0 ? 0 : kUsage);
  }
  complete(plan, values);
  return plan;
}

}  // namespace ddpsock::perf
