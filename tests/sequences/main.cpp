// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// sequences --first SEED [--count N] [--batch N] [--patience MS] [--plain clients|servers] [--only
// N,N...] Runs the sequences of these seeds and prints what was seen; sequences.py compares.
//
// A worker process runs a batch of them one after the other, as a program does that lives on; one
// that has to be given up is followed by another, which goes on behind the sequence that cost it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <string>
#include <string_view>

#include "actors.h"
#include "base/kernel_call.h"
#include "conductor.h"
#include "script.h"
#include "world.h"

namespace ddpsock::sequences {
namespace {

constexpr unsigned kSequenceSeconds = 20;
constexpr int kGivenUp = 3;

struct Options {
  uint64_t first = 1, count = 1, batch = 16;
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

[[noreturn]] void work(const Options& options, uint64_t from, uint64_t to) {
  handle_signals();
  Conductor conductor;
  for (uint64_t seed = from; seed < to; ++seed) {
    world->index = seed;
    prepare(options, seed);
    alarm(kSequenceSeconds);
    const bool is_fit = conductor.run();
    print_log();
    world->index = seed + 1;
    if (!is_fit) _exit(kGivenUp);
  }
  _exit(0);
}

// Where the next worker has to begin.
uint64_t supervise(const Options& options, uint64_t from, uint64_t to) {
  world->index = from;
  const pid_t worker = fork();
  if (worker == 0) work(options, from, to);
  int status = 0;
  waitpid(worker, &status, 0);
  const uint64_t reached = world->index;
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kGivenUp))
    return reached;
  world->say("the process died: status %#x\n", static_cast<unsigned>(status));
  print_log();
  return reached + 1;
}

void run(const Options& options) {
  const uint64_t end = options.first + options.count;
  for (uint64_t next = options.first; next < end;) {
    const uint64_t batch_end = next - next % options.batch + options.batch;
    next = supervise(options, next, std::min(batch_end, end));
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
    if (name == "--first") options.first = strtoull(value, nullptr, 10);
    if (name == "--count") options.count = strtoull(value, nullptr, 10);
    if (name == "--batch") options.batch = strtoull(value, nullptr, 10);
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
