// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ddprun: runs a program with libddpsock preloaded and the rules handed to it. See man/ddprun.1.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "shim/run/ddprun_doctor.h"
#include "shim/run/ddprun_enable.h"
#include "shim/run/ddprun_explain.h"
#include "shim/run/ddprun_failure.h"
#include "shim/run/ddprun_record.h"
#include "shim/run/ddprun_rules.h"
#include "shim/run/ddprun_target.h"
#include "shim/run/explain.h"

namespace ddpsock::shim {
namespace {

struct Options {
  Choice choice;
  Recording recording;
  std::string explain;  // "", "before" or "after" the program has run
  std::string role = "client", address;
  uint16_t port = 0;
  std::vector<std::string> command;
};

std::string need_library() {
  std::string path = find_library();
  if (path.empty()) stop("libddpsock.so is neither beside ddprun nor in {}", DDPSOCK_LIBDIR);
  return path;
}

void add_preload(const std::string& library) {
  // The loader splits the list at both, and there is no way to quote.
  if (library.find_first_of(" :") != library.npos)
    stop("{}: LD_PRELOAD cannot name a path with a blank or a colon", library);
  const char* old = getenv("LD_PRELOAD");
  std::string list = old != nullptr ? old : "";
  if ((":" + list + ":").find(":" + library + ":") != list.npos) return;
  if (!list.empty()) list += ":";
  setenv("LD_PRELOAD", (list + library).c_str(), 1);
}

void warn_or_stop(const Options& options, const Target& target) {
  const std::string line =
      fmt::format("{}: not covered: {}", options.command.front(), target.reason);
  if (options.choice.action == Action::kRequire) stop("{}", line);
  fmt::print(stderr, "ddprun: {}; it runs without DDP\n", line);
}

[[noreturn]] void fail_to_start(const Options& options, int error) {
  throw Failure{error == ENOENT ? kStatusNotFound : kStatusNotRunnable,
                fmt::format("{}: {}", options.command.front(), strerror(error))};
}

void prepare_environment(const Options& options, const std::string& rules) {
  add_preload(need_library());
  setenv("DDPSOCK_RULES", rules.c_str(), 1);
  if (!options.choice.engine.empty()) setenv("DDPSOCK_ENGINE", options.choice.engine.c_str(), 1);
}

[[noreturn]] void execute(const Options& options, const RecordedFiles& files) {
  announce(files);
  std::vector<char*> argv;
  for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  fflush(nullptr);
  execvp(argv[0], argv.data());
  fail_to_start(options, errno);
}

int run(const Options& options) {
  const ChosenRules chosen = read_choice(options.choice);
  const Target target = examine_target(options.command);
  if (target.finding == Target::Finding::kNotFound) fail_to_start(options, ENOENT);
  if (target.finding == Target::Finding::kNotRunnable) fail_to_start(options, EACCES);
  if (target.finding == Target::Finding::kNotCovered) warn_or_stop(options, target);
  const RecordedFiles files = make_files(options.recording);
  prepare_environment(options, chosen.text);
  if (options.explain == "after")
    return explain_after(options.command.front(), [&] { execute(options, files); });
  execute(options, files);
}

// All digits: a process. A program of such a name needs a path.
int process_in(const Options& options) {
  const std::string& word = options.command.front();
  const bool is_alone = options.command.size() == 1 && options.address.empty() && options.port == 0;
  int pid = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), pid);
  return is_alone && error == std::errc{} && end == word.data() + word.size() ? pid : 0;
}

int run_explain(const Options& options) {
  if (const int pid = process_in(options); pid > 0) return explain_process(pid);
  if (options.address.empty() || options.port == 0)
    stop("--explain needs --address and --port of the server");
  auto server = parse_address(options.address);
  if (!server) stop("--address: expected an IPv4 or IPv6 address, not '{}'", options.address);
  server->port = options.port;
  const Target target = examine_target(options.command);
  const ChosenRules chosen = read_choice(options.choice);
  const Role role = options.role == "client" ? Role::kClient : Role::kServer;
  fmt::print("{}", explain({target, role, *server, chosen.source, chosen.text}));
  return 0;
}

void declare(CLI::App& app, Options& options) {
  app.set_version_flag("--version", "ddprun " DDPSOCK_VERSION);
  declare_choice(app, options.choice);
  declare_recording(app, options.recording);
  app.add_flag("--explain{before}", options.explain,
               "print the verdict for CMD, do not run it; of a process id, what its connections "
               "are; --explain=after: run CMD, then print what its connections were")
      ->check(CLI::IsMember({"before", "after"}));
  app.add_option("--role", options.role, "with --explain: client or server")
      ->check(CLI::IsMember({"client", "server"}));
  app.add_option("--address", options.address, "with --explain: the server's address");
  app.add_option("--port", options.port, "with --explain: the server's port");
  app.prefix_command();
}

int start(int argc, char** argv) {
  CLI::App app(
      "ddprun [OPTIONS] [--] CMD [ARGUMENTS...]\n"
      "Runs CMD with its TCP connections in DDPMODE where the rules say so.\n"
      "Or as first word: enable UNIT, disable UNIT, doctor CMD HOST:PORT, profiles [NAME].",
      "ddprun");
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kFailed;
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--")
    options.command.erase(options.command.begin());
  if (options.command.empty()) stop("which program? (ddprun --help)");
  if (options.command.front().starts_with("-"))
    stop("unknown option {} (ddprun --help)", options.command.front());
  return options.explain == "before" ? run_explain(options) : run(options);
}

// Words that are ddprun's own where they are its first argument. A program of such a name is run by
// its path, or behind an option or --.
struct Command {
  std::string_view name;
  int (*run)(int argc, char** argv);
};
constexpr Command kCommands[] = {
    {"enable", run_enable},
    {"disable", run_disable},
    {"doctor", run_doctor},
    {"profiles", run_profiles},
};

int dispatch(int argc, char** argv) {
  for (const Command& command : kCommands)
    if (argc > 1 && argv[1] == command.name) return command.run(argc - 1, argv + 1);
  return start(argc, argv);
}

}  // namespace
}  // namespace ddpsock::shim

int main(int argc, char** argv) {
  try {
    return ddpsock::shim::dispatch(argc, argv);
  } catch (const ddpsock::shim::Failure& f) {
    fmt::print(stderr, "ddprun: {}\n", f.message);
    return f.status;
  }
}
