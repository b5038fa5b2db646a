// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "shim/policy/discovery.h"
#include "shim/policy/inet_diag.h"
#include "shim/policy/registry.h"
#include "shim/policy/rules.h"
#include "shim/run/ddprun_target.h"
#include "tools/stat/processes.h"
#include "tools/stat/text.h"

namespace ddpsock::shim {
namespace {

namespace fs = std::filesystem;

std::string read_of(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string variable_of(int pid, const std::string& name) {
  std::istringstream all(read_of(pid, "environ"));
  for (std::string entry; std::getline(all, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return "";
}

bool holds_socket(const fs::path& process, const std::string& link) {
  std::error_code error;
  for (const auto& descriptor : fs::directory_iterator(process / "fd", error))
    if (fs::read_symlink(descriptor.path(), error) == link) return true;
  return false;
}

// The first process that has the socket, of those that may be looked at; 0: none.
int find_holder(uint32_t inode) {
  const std::string link = fmt::format("socket:[{}]", inode);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == name.npos && holds_socket(entry.path(), link))
      return std::stoi(name);
  }
  return 0;
}

std::string describe_process(int pid) {
  std::string program = read_of(pid, "comm");
  if (program.ends_with('\n')) program.pop_back();
  return fmt::format("{} (process {})", program.empty() ? "?" : stat::printable(program), pid);
}

bool says_off(int pid, const Address& served) {
  std::error_code error;
  const std::string binary = fs::read_symlink(fmt::format("/proc/{}/exe", pid), error);
  const auto rules = std::make_unique<RuleSet>();
  const std::string text = variable_of(pid, "DDPSOCK_RULES");
  return text.empty() || !parse_rules(text, {binary, binary}, *rules) ||
         rules->is_off_for_some(served);
}

// What a user namespace shows for every user that it does not know.
constexpr uid_t kOverflowUid = 65534;

// Of a listener that nobody has registered.
std::string reason_in(int pid, uid_t owner, const Address& served) {
  if (!stat::parse_maps(read_of(pid, "maps")).has_library) {
    std::error_code error;
    const std::string binary = fs::read_symlink(fmt::format("/proc/{}/exe", pid), error);
    const Target target = examine_target({&binary, 1});
    return target.finding == Target::Finding::kNotCovered
               ? fmt::format("it cannot have the library: {}", target.reason)
               : "it runs without the library; start it with ddprun";
  }
  if (owner == kOverflowUid)
    return fmt::format(
        "its user's number, {}, is also that of all whom this system cannot name, so "
        "it proves nothing; run it as another user",
        owner);
  if (says_off(pid, served)) return "its rules say plain TCP for this listener, or it has none";
  return "it has not registered this listener: the program asked for plain TCP or for time stamps, "
         "or its registry is another one (chroot, container)";
}

void describe_entry(const Entry& entry, ListenerView& view) {
  view.by = fmt::format("{}, user {}{}", describe_process(static_cast<int>(entry.pid)),
                        name_of_user(view.owner), entry.is_adopted ? ", adopted" : "");
  view.engine = variable_of(static_cast<int>(entry.pid), "DDPSOCK_ENGINE");
  if (entry.is_retired)
    view.reason = "it has taken back its word: the program asked for plain TCP";
  else if (entry.escaped.is_any())
    view.reason =
        "a copy of the listener has gone to a program without the library, or its "
        "connections are handed out to other processes";
  else
    view.reason = "another listener of that port is not in DDPMODE";
}

// ----- system calls

bool is_done_by(long result) {
  if (result < 0) return false;
  close(static_cast<int>(result));
  return true;
}

bool can_share_by_key() {
  const int id = shmget(IPC_PRIVATE, 4096, 0600);
  return id >= 0 && shmctl(id, IPC_RMID, nullptr) == 0;
}

struct Trial {
  const char* name;
  bool (*is_done)();
};
constexpr Trial kTrials[] = {
    {"memfd_create", [] { return is_done_by(memfd_create("ddprun", MFD_CLOEXEC)); }},
    {"pidfd_open", [] { return is_done_by(syscall(SYS_pidfd_open, getpid(), 0)); }},
    {"shmget", can_share_by_key},
    {"socket(AF_NETLINK)",
     [] { return is_done_by(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 4)); }},
    {"clock_gettime(CLOCK_BOOTTIME)",
     [] {
       timespec now{};
       return syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &now) == 0;
     }},
};

bool is_filtered() {
  std::istringstream lines(read_of(getpid(), "status"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("Seccomp:")) return line.find_first_of("12") != line.npos;
  return false;
}

}  // namespace

std::string name_of_user(uid_t user) {
  const passwd* entry = getpwuid(user);
  return entry != nullptr ? entry->pw_name : fmt::format("user {}", user);
}

ListenerView look_at_listener(const Endpoint& server) {
  ListenerView view;
  InetDiag diag;
  Address asked = server.address;
  if (asked.is_wildcard()) asked.bytes[15] = 1, asked.bytes[12] = asked.is_v4() ? 127 : 0;
  const auto listener = diag.find_listener(asked);
  if (!listener) {
    const bool is_none = listener.error() == Errno{ENOENT};
    view.state = is_none ? ListenerView::State::kNone : ListenerView::State::kUnknown;
    view.reason = fmt::format("the kernel's socket table cannot be asked: {}",
                              strerror(to_int(listener.error())));
    return view;
  }
  view.owner = listener->uid;
  view.by = fmt::format("a program of user {}", name_of_user(view.owner));
  const base::UniqueFd fd(socket(server.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Listening listening = find_listening(fd.get(), server.address, Traffic::kStream);
  const auto found = look_up(listener->uid, {.netns = diag.netns(), .cookie = listener->cookie});
  if (found.outcome == shim::Lookup::Outcome::kFound) describe_entry(found.entry, view);
  if (listening == Listening::kRegistered) {
    view.state = ListenerView::State::kRegistered;
  } else if (listening == Listening::kUnknown) {
    view.reason = "link-local addresses and other network namespaces cannot be proved";
  } else if (found.outcome == shim::Lookup::Outcome::kFound) {
    view.state = ListenerView::State::kUnregistered;
  } else {
    view.state = ListenerView::State::kUnregistered;
    const int holder = find_holder(listener->inode);
    view.reason = holder != 0 ? reason_in(holder, view.owner, listener->local)
                              : "it is not in DDPMODE; start it with ddprun (who it is cannot be "
                                "seen by this user)";
    if (holder != 0) view.by = describe_process(holder);
  }
  return view;
}

CallsTried try_calls() {
  CallsTried tried;
  tried.has_filter = is_filtered();
  for (const Trial& trial : kTrials) {
    const pid_t child = fork();
    if (child == 0) _exit(trial.is_done() ? 0 : 1);
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) != 0))
      tried.refused += fmt::format(" {}", child < 0 ? "fork" : trial.name);
    if (child > 0 && WIFSIGNALED(status)) {
      tried.fatal = trial.name;
      break;
    }
  }
  return tried;
}

}  // namespace ddpsock::shim
