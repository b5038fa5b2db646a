// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// sequences --seeds N|N-N,... [--patience MS] [--plain clients|servers] [--only N,N...]
// Runs the sequences of these seeds and prints what was seen; sequences.py compares.
//
// A worker process runs a batch of them one after the other, as a program does that lives on; one
// that has to be given up is followed by another, which goes on behind the sequence that cost it.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "actors.h"
#include "base/kernel_call.h"
#include "conductor.h"
#include "script.h"
#include "world.h"

namespace ddpsock::sequences {
namespace {

constexpr unsigned kSequenceSeconds = 20;
constexpr size_t kBatch = 32;
constexpr int kGivenUp = 3;

struct Options {
  std::vector<uint64_t> seeds;
  std::set<size_t> only;  // which ops of the sequence; empty: all
  bool is_only = false;
};

void print(std::string_view text) {
  while (!text.empty()) {
    const long written = base::kernel_call(SYS_write, STDOUT_FILENO, text.data(), text.size());
    if (written <= 0) _exit(1);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void print_log() {
  print("== " + std::to_string(world->seed) + "\n");
  print({world->log.data(), world->log_size.load()});
}

Script script_of(const Options& options, uint64_t seed) {
  Script script = generate(seed);
  if (!options.is_only) return script;
  Script part{};
  for (size_t i = 0; i < script.count; ++i)
    if (options.only.contains(i)) part.ops[part.count++] = script.ops[i];
  return part;
}

void prepare(const Options& options, uint64_t seed) {
  world->seed = seed;
  world->script = script_of(options, seed);
  world->step = 0;
  for (Connection& connection : world->connections) new (&connection) Connection{};
  world->connection_count = 0;
  world->pass_count = world->take_count = 0;
  world->log_size = 0;
  for (int i = kThreads; i < kActors; ++i) world->actors[static_cast<size_t>(i)].exists = false;
  myself = {};
  myself.slots.fill(-1);
}

[[noreturn]] void work(const Options& options, size_t from, size_t to) {
  handle_signals();
  Conductor conductor;
  for (size_t i = from; i < to; ++i) {
    world->index = i;
    prepare(options, options.seeds[i]);
    alarm(kSequenceSeconds);
    const bool is_fit = conductor.run();
    print_log();
    world->index = i + 1;
    if (!is_fit) _exit(kGivenUp);
  }
  _exit(0);
}

// Where the next worker has to begin.
size_t supervise(const Options& options, size_t from, size_t to) {
  world->index = from;
  const pid_t worker = fork();
  if (worker == 0) {
    setpgid(0, 0);  // what ends us by our group does not reach it
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(options, from, to);
  }
  setpgid(worker, worker);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(worker), &info, WEXITED | WNOWAIT);
  // Whom a worker that died has made may be asleep for good.
  kill(-worker, SIGKILL);
  int status = 0;
  waitpid(worker, &status, 0);
  const size_t reached = world->index;
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kGivenUp))
    return reached;
  world->say("the process died: status %#x\n", static_cast<unsigned>(status));
  print_log();
  return reached + 1;
}

void run(const Options& options) {
  for (size_t next = 0; next < options.seeds.size();)
    next = supervise(options, next, std::min(next + kBatch, options.seeds.size()));
}

void read_seeds(const char* text, std::vector<uint64_t>& seeds) {
  for (bool is_more = true; is_more;) {
    char* end = nullptr;
    uint64_t seed = strtoull(text, &end, 10);
    const uint64_t last = *end == '-' ? strtoull(end + 1, &end, 10) : seed;
    while (seed <= last) seeds.push_back(seed++);
    is_more = *end == ',';
    text = end + 1;
  }
}

void read_only(const char* text, Options& options) {
  options.is_only = true;
  while (*text != '\0') {
    char* end = nullptr;
    options.only.insert(strtoul(text, &end, 10));
    text = *end == ',' ? end + 1 : end;
  }
}

int start(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--actor") == 0) live_after_exec(atoi(argv[2]));
  Options options;
  create_world();
  map_world();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--seeds") read_seeds(value, options.seeds);
    if (name == "--patience") world->patience_ms = atoi(value);
    if (name == "--plain")
      world->plain = strcmp(value, "clients") == 0 ? Plain::kClients : Plain::kServers;
    if (name == "--only") read_only(value, options);
  }
  run(options);
  return 0;
}

}  // namespace
}  // namespace ddpsock::sequences

int main(int argc, char** argv) {
  return ddpsock::sequences::start(argc, argv);
}
