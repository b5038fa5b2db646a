// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ddpstat: what every ddpsock process and connection of this user is doing. See man/ddpstat.1.
#include <errno.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tools/stat/json.h"
#include "tools/stat/screen.h"
#include "tools/stat/snapshot.h"
#include "tools/stat/table.h"
#include "tools/stat/text.h"

namespace ddpsock::stat {
namespace {

constexpr int kNothingFound = 1, kFailed = 2;
constexpr double kLeastSeconds = 0.1, kMostSeconds = 86400;

struct Options {
  std::optional<Duration> interval;
  bool is_json = false, is_detail = false;
  std::vector<std::string> wanted;
};

int fail_with(const char* what, int error) {
  fmt::print(stderr, "ddpstat: {}: {}\n", what, strerror(error));
  return kFailed;
}

std::optional<Snapshot> look(const Options& options) {
  auto snapshot = take_snapshot();
  if (snapshot) filter(*snapshot, options.wanted);
  return snapshot;
}

std::vector<std::string> show(const Options& options, const Snapshot& now, const Snapshot* before) {
  if (options.is_json) return {to_json(now)};
  const ScreenSize size = screen_size();
  const bool is_watching = options.interval.has_value();
  std::vector<std::string> lines =
      options.is_detail ? details(now, before)
                        : table(now, before, size.columns, is_watching ? size.rows : kUnlimited);
  if (!is_watching) return lines;
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) line = cut(line, size.columns);
  return lines;
}

int run_once(const Options& options) {
  const auto now = look(options);
  if (!now) return fail_with("/proc", errno);
  if (!options.wanted.empty() && now->processes.empty() && now->connections.empty()) {
    if (options.is_json) print_lines(show(options, *now, nullptr));
    fmt::print(stderr, "ddpstat: no such process or connection of this user\n");
    return kNothingFound;
  }
  return print_lines(show(options, *now, nullptr)) ? 0 : fail_with("standard output", errno);
}

int watch(const Options& options) {
  int error = 0;
  {
    Screen screen(!options.is_json);
    std::optional<Snapshot> now = look(options), before;
    for (Time next = base::now() + *options.interval;;) {
      if (!now || !screen.draw(show(options, *now, before ? &*before : nullptr))) {
        error = errno;
        break;
      }
      const Screen::Wake wake = screen.wait(next);
      if (wake == Screen::Wake::kEnd) break;
      if (wake == Screen::Wake::kResized) continue;
      before = std::move(now);
      now = look(options);
      next = std::max(next + *options.interval, base::now());
    }
  }
  return error == 0 || error == EPIPE ? 0 : fail_with("cannot go on", error);
}

}  // namespace
}  // namespace ddpsock::stat

int main(int argc, char** argv) {
  using namespace ddpsock;
  CLI::App app("Shows the ddpsock processes and connections of this user.", "ddpstat");
  app.set_version_flag("--version", "ddpstat " DDPSOCK_VERSION);
  stat::Options options;
  double seconds = 1;
  app.add_option("WHAT", options.wanted, "only these: a pid, a program, or :PORT of either end");
  auto* watch = app.add_option("-w,--watch", seconds, "again every SECONDS (1), with rates")
                    ->expected(0, 1)
                    ->type_name("[SECONDS]")
                    ->check(CLI::Range(stat::kLeastSeconds, stat::kMostSeconds));
  auto* json = app.add_flag("--json", options.is_json, "one JSON object a line");
  app.add_flag("-d,--detail", options.is_detail, "everything of each connection")->excludes(json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : stat::kFailed;
  }
  if (watch->count() == 0) return stat::run_once(options);
  options.interval = Duration{static_cast<int64_t>(seconds * 1e9)};
  return stat::watch(options);
}
