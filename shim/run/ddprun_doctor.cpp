// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "shim/policy/inet_diag.h"
#include "shim/policy/registry_table.h"
#include "shim/run/ddprun_failure.h"
#include "shim/run/ddprun_listener.h"
#include "shim/run/ddprun_probe.h"
#include "shim/run/ddprun_report.h"
#include "shim/run/ddprun_rules.h"
#include "shim/run/ddprun_target.h"
#include "tools/stat/text.h"

namespace ddpsock::shim {
namespace {

constexpr rlim_t kFewDescriptors = 256;

struct Options {
  Choice choice;
  std::string program, address;
  bool may_probe = false;
};

void check_program(const Target& target, Report& report) {
  if (target.finding == Target::Finding::kCovered)
    report.ok("program", "{}: a preloaded library reaches it", target.path);
  else
    report.missing("program", "{}: {}", target.path, target.reason);
}

void check_library(Report& report) {
  const std::string path = find_library();
  if (path.empty())
    report.missing("library", "libddpsock.so is neither beside ddprun nor in {}", DDPSOCK_LIBDIR);
  else
    report.ok("library", "{}", path);
}

// ----- what the program needs of this system

// The folder, and this user's file in it if there is one. Nothing is made.
void check_registry(Report& report) {
  const char* given = getenv("DDPSOCK_REGISTRY_DIR");
  const std::string folder = given != nullptr ? given : "/dev/shm";
  const std::string path = fmt::format("{}/ddpsock-{}", folder, geteuid());
  struct stat st;
  if (lstat(path.c_str(), &st) == 0) {
    const bool is_right = S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                          (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
                          (st.st_size == 0 || st.st_size == off_t{kRegistryFileSize});
    if (is_right && access(path.c_str(), R_OK | W_OK) == 0)
      report.ok("registry", "{}", path);
    else
      report.missing("registry", "{} is not what the library writes; remove it", path);
    return;
  }
  struct statvfs space{};
  if (statvfs(folder.c_str(), &space) != 0)
    report.missing("registry", "{}: {}; mount a tmpfs there", folder, strerror(errno));
  else if (access(folder.c_str(), W_OK | X_OK) != 0)
    report.missing("registry", "{} cannot be written: {}", folder, strerror(errno));
  else if (space.f_bavail * space.f_frsize < kRegistryFileSize)
    report.missing("registry", "{} is full", folder);
  else
    report.ok("registry", "{} can be made", path);
}

void check_limits(Report& report) {
  rlimit files{}, memory{}, size{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_AS, &memory);
  getrlimit(RLIMIT_FSIZE, &size);
  if (files.rlim_cur < kFewDescriptors)
    report.missing("limits",
                   "{} descriptors are few, and connections need some more than by TCP; "
                   "raise ulimit -n",
                   files.rlim_cur);
  else if (memory.rlim_cur != RLIM_INFINITY)
    report.missing("limits", "the address space is limited: no shared memory; ulimit -v unlimited");
  else if (size.rlim_cur < kRegistryFileSize)
    report.missing("limits",
                   "files are limited to less than the registry has; ulimit -f unlimited");
  else
    report.ok("limits", "{} descriptors, address space and files not limited", files.rlim_cur);
}

void check_calls(Report& report) {
  const CallsTried tried = try_calls();
  if (!tried.fatal.empty())
    report.missing("calls", "a seccomp filter ends who calls {}; allow it, or leave the container",
                   tried.fatal);
  else if (!tried.refused.empty())
    report.missing("calls", "the system refuses{}; a container's seccomp filter has to allow them",
                   tried.refused);
  else
    report.ok("calls", "the system allows what DDPMODE needs{}",
              tried.has_filter ? " (of a seccomp filter, where it was tried)" : "");
}

bool check_netlink(Report& report) {
  const InetDiag diag;
  if (diag.open_error() != 0)
    report.missing("netlink", "the kernel's socket table cannot be asked: {}; nobody can be proved",
                   strerror(diag.open_error()));
  else if (diag.netns() == 0)
    report.missing("netlink",
                   "the kernel has no SO_NETNS_COOKIE (Linux 5.14): nobody can be proved");
  else
    report.ok("netlink", "the kernel's socket table can be asked");
  return diag.open_error() == 0 && diag.netns() != 0;
}

// ----- the connection

Decision check_rules(const ChosenRules& chosen, const Target& target, const Endpoint& to,
                     Report& report) {
  const std::unique_ptr<char, decltype(&std::free)> binary(realpath(target.binary.c_str(), nullptr),
                                                           &std::free);
  const Program program{target.path, binary ? binary.get() : ""};
  const auto rules = std::make_unique<RuleSet>();
  if (const auto parsed = parse_rules(chosen.text, program, *rules); !parsed) {
    report.missing("rules", "not usable: expected {}", parsed.error().expected);
    return {Action::kOff, true, 0};
  }
  const Decision d = rules->decide(Role::kClient, to.address);
  const std::string where =
      d.line != 0 ? fmt::format("{}:{}", chosen.source, d.line) : std::string("the default");
  if (d.action == Action::kOff)
    report.missing("rules", "{}: off; plain TCP is wanted", where);
  else
    report.ok("rules", "{}: {}", where, to_text(d.action));
  return d;
}

void check_memory(const Options& options, const ListenerView& listener, Report& report) {
  if (options.choice.engine == "user")
    report.ok("memory", "not wanted (--engine user)");
  else if (listener.owner != geteuid())
    report.missing("memory",
                   "the server is {}'s and this is {}: the user engine over TCP; run both "
                   "as one user for shared memory",
                   name_of_user(listener.owner), name_of_user(geteuid()));
  else if (listener.engine == "user")
    report.missing("memory", "the server was started with --engine user");
  else
    report.ok("memory", "both ends are {}'s: shared memory", name_of_user(geteuid()));
}

void check_here(const Options& options, const Endpoint& to, Report& report) {
  report.ok("address", "{} is of this host", to.text);
  const ListenerView listener = look_at_listener(to);
  switch (listener.state) {
    case ListenerView::State::kRegistered:
      report.ok("listener", "in DDPMODE by the word of {}", listener.by);
      check_memory(options, listener, report);
      return;
    case ListenerView::State::kUnregistered:
      report.missing("listener", "{}: {}", listener.by, listener.reason);
      return;
    case ListenerView::State::kUnknown:
      report.unknown("listener", "{}", listener.reason);
      return;
    case ListenerView::State::kNone:
      break;
  }
  if (connect_to(to))
    report.missing("listener",
                   "nobody listens there in this network namespace, and yet somebody "
                   "answers: address translation to another one (a container?); run "
                   "both ends in one");
  else
    report.missing("listener", "nobody listens there; start the server with ddprun");
}

void check_elsewhere(const Options& options, const Endpoint& to, const Decision& d,
                     Report& report) {
  report.ok("address", "{} is of another host, or of another network namespace", to.text);
  const auto fd = connect_to(to);
  if (!fd) {
    report.missing("server", "no connection: {}", strerror(fd.error()));
    return;
  }
  report.ok("server", "takes connections");
  if (d.action != Action::kRequire)
    report.missing("proof",
                   "what is not on this host cannot prove itself, and is plain TCP under "
                   "{}: require it by a rule, at both ends",
                   to_text(d.action));
  if (!options.may_probe) {
    report.unknown("mpa",
                   "whether it speaks MPA; --probe sends it a Request, which is nonsense to a "
                   "server of anything else");
    return;
  }
  const auto answer = ask_for_mpa(fd->get());
  if (answer)
    report.ok("mpa", "answers: {}", *answer);
  else
    report.missing("mpa",
                   "does not speak MPA to strangers ({}); start it with ddprun, and a rule "
                   "that requires DDP",
                   answer.error());
}

// Of several the one that the program will come to.
const Endpoint& choose(const std::vector<Endpoint>& all) {
  for (const Endpoint& e : all)
    if (is_of_this_host(e) && look_at_listener(e).state != ListenerView::State::kNone) return e;
  return all.front();
}

int examine(const Options& options) {
  const ChosenRules chosen = read_choice(options.choice);
  const Target target = examine_target({&options.program, 1});
  Report report;
  check_program(target, report);
  check_library(report);
  check_registry(report);
  check_limits(report);
  check_calls(report);
  check_netlink(report);
  const auto endpoints = find_endpoints(options.address);
  if (!endpoints) {
    report.missing("address", "{}: {}", stat::printable(options.address), endpoints.error());
    return report.status();
  }
  const Endpoint& to = choose(*endpoints);
  const Decision d = check_rules(chosen, target, to, report);
  if (is_of_this_host(to))
    check_here(options, to, report);
  else
    check_elsewhere(options, to, d, report);
  return report.status();
}

}  // namespace

int run_doctor(int argc, char** argv) {
  CLI::App app("Says what is missing for a connection of CMD to be in DDPMODE, a line a check.",
               "ddprun doctor");
  Options options;
  app.add_option("CMD", options.program, "the program that is to connect")->required();
  app.add_option("ADDRESS", options.address, "host:port, or [address]:port for IPv6")->required();
  app.add_flag("--probe", options.may_probe,
               "send a server of another host an MPA Request, and say what it answers");
  declare_choice(app, options.choice);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kFailed;
  }
  return examine(options);
}

}  // namespace ddpsock::shim
