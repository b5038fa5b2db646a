// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ddprun: runs a program with libddpsock preloaded and the rules handed to it. See man/ddprun.1.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "shim/ddprun_target.h"
#include "shim/explain.h"
#include "shim/rules_toml.h"

namespace ddpsock::shim {
namespace {

constexpr int kFailed = 125, kNotRunnable = 126, kNotFound = 127;  // as env(1)
constexpr const char* kLibrary = "libddpsock.so";

// Ends ddprun before the program starts.
struct Failure {
  int status;
  std::string message;
};

struct Options {
  std::string engine, rules_file, role = "client", address;
  std::optional<Action> action;
  uint16_t port = 0;
  bool is_explain = false;
  std::vector<std::string> command;
};

template <typename... T>
[[noreturn]] void stop(fmt::format_string<T...> format, T&&... values) {
  throw Failure{kFailed, fmt::format(format, std::forward<T>(values)...)};
}

std::string read_whole(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) stop("{}: is a directory", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) stop("{}: {}", path, strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string compose_rules(const Options& options) {
  std::vector<FileRule> rules;
  if (!options.rules_file.empty()) {
    auto parsed = parse_rules_file(read_whole(options.rules_file));
    if (!parsed) {
      const FileError& e = parsed.error();
      stop("{}:{}:{}: expected {}", options.rules_file, e.line, e.column, e.expected);
    }
    rules = std::move(*parsed);
  }
  auto text = encode_rules(rules, Rule{.action = options.action.value_or(Action::kPrefer)});
  if (!text) stop("{}: {}", options.rules_file, text.error());
  return *text;
}

// Beside ddprun in a build, in the library folder when installed.
std::string find_library() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) stop("cannot tell where ddprun is: {}", error.message());
  for (const std::filesystem::path& folder :
       {self.parent_path(), std::filesystem::path(DDPSOCK_LIBDIR)}) {
    const auto path = folder / kLibrary;
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  stop("{} is neither beside ddprun nor in {}", kLibrary, DDPSOCK_LIBDIR);
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
  if (options.action == Action::kRequire) stop("{}", line);
  fmt::print(stderr, "ddprun: {}; it runs without DDP\n", line);
}

[[noreturn]] void fail_to_start(const Options& options, int error) {
  throw Failure{error == ENOENT ? kNotFound : kNotRunnable,
                fmt::format("{}: {}", options.command.front(), strerror(error))};
}

int run(const Options& options) {
  const std::string rules = compose_rules(options);
  const Target target = examine_target(options.command);
  if (target.finding == Target::Finding::kNotFound) fail_to_start(options, ENOENT);
  if (target.finding == Target::Finding::kNotRunnable) fail_to_start(options, EACCES);
  if (target.finding == Target::Finding::kNotCovered) warn_or_stop(options, target);
  add_preload(find_library());
  setenv("DDPSOCK_RULES", rules.c_str(), 1);
  if (!options.engine.empty()) setenv("DDPSOCK_ENGINE", options.engine.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  fflush(nullptr);
  execvp(argv[0], argv.data());
  fail_to_start(options, errno);
}

int run_explain(const Options& options) {
  if (options.address.empty() || options.port == 0)
    stop("--explain needs --address and --port of the server");
  auto server = parse_address(options.address);
  if (!server) stop("--address: expected an IPv4 or IPv6 address, not '{}'", options.address);
  server->port = options.port;
  const Target target = examine_target(options.command);
  const std::string rules = compose_rules(options);
  const Role role = options.role == "client" ? Role::kClient : Role::kServer;
  fmt::print("{}", explain({target, role, *server, options.rules_file, rules}));
  return 0;
}

void declare(CLI::App& app, Options& options) {
  app.set_version_flag("--version", "ddprun " DDPSOCK_VERSION);
  app.add_option("--engine", options.engine, "engine for connections in DDPMODE")
      ->check(CLI::IsMember({"auto", "user", "shm"}));
  app.add_option("--rules", options.rules_file, "rules file (TOML)")->type_name("FILE");
  const auto add_default = [&](const char* name, Action action, const char* help) {
    return app.add_flag_callback(name, [&options, action] { options.action = action; }, help);
  };
  auto* require = add_default("--require", Action::kRequire,
                              "where no rule matches: DDP, or an error; not covered: exit 125");
  auto* prefer = add_default("--prefer", Action::kPrefer,
                             "where no rule matches: DDP with peers that prove it (default)");
  auto* off = add_default("--off", Action::kOff, "where no rule matches: plain TCP");
  require->excludes(prefer)->excludes(off);
  prefer->excludes(off);
  app.add_flag("--explain", options.is_explain, "print the verdict for CMD, do not run it");
  app.add_option("--role", options.role, "with --explain: client or server")
      ->check(CLI::IsMember({"client", "server"}));
  app.add_option("--address", options.address, "with --explain: the server's address");
  app.add_option("--port", options.port, "with --explain: the server's port");
  app.prefix_command();
}

int start(int argc, char** argv) {
  CLI::App app(
      "ddprun [OPTIONS] [--] CMD [ARGUMENTS...]\n"
      "Runs CMD with its TCP connections in DDPMODE where the rules say so.",
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
  return options.is_explain ? run_explain(options) : run(options);
}

}  // namespace
}  // namespace ddpsock::shim

int main(int argc, char** argv) {
  try {
    return ddpsock::shim::start(argc, argv);
  } catch (const ddpsock::shim::Failure& f) {
    fmt::print(stderr, "ddprun: {}\n", f.message);
    return f.status;
  }
}
