// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_explain.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "shim/run/ddprun_failure.h"
#include "shim/run/ddprun_target.h"
#include "tools/stat/snapshot.h"
#include "tools/stat/text.h"

namespace ddpsock::shim {
namespace {

constexpr size_t kMostLines = 50;  // of single connections

volatile sig_atomic_t child_pid = 0;

void pass_on(int signal) {
  if (child_pid > 0) kill(static_cast<pid_t>(child_pid), signal);
}

// A folder of its own for the log, as programs that change their user must be able to write it.
class LogFolder {
 public:
  LogFolder() {
    const char* base = getenv("TMPDIR");
    path_ = fmt::format("{}/ddprun-XXXXXX", base != nullptr && *base == '/' ? base : "/tmp");
    if (mkdtemp(path_.data()) == nullptr) stop("{}: {}", path_, strerror(errno));
    const bool is_root = geteuid() == 0;  // only then can the program become somebody else
    const int fd = open(log().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || (is_root && (fchmod(fd, 0622) != 0 || chmod(path_.c_str(), 0711) != 0)))
      stop("{}: {}", log(), strerror(errno));
    close(fd);
  }
  ~LogFolder() {
    unlink(log().c_str());
    rmdir(path_.c_str());
  }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  std::string log() const { return path_ + "/log"; }

 private:
  std::string path_;
};

// As a shell has it.
int wait_for(pid_t child) {
  child_pid = child;
  struct sigaction ignore{}, forward{};
  ignore.sa_handler = SIG_IGN;  // the terminal sends these to the child too
  forward.sa_handler = pass_on;
  for (const int signal : {SIGINT, SIGQUIT}) sigaction(signal, &ignore, nullptr);
  for (const int signal : {SIGTERM, SIGHUP}) sigaction(signal, &forward, nullptr);
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return kFailed;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string describe_engine(const std::string& engine) {
  if (engine == "shm") return "DDP in shared memory";
  if (engine == "user") return "DDP by the user engine";
  return "DDP";
}

std::string describe_verdict(const LoggedEvent& e) {
  if (e.mode == "plain") return "plain TCP";
  if (e.mode == "undecided") return "its first bytes decide";
  return describe_engine(e.engine) + (e.mode == "message" ? ", messages" : "");
}

// What was logged of one connection, in a line.
struct Story {
  LoggedEvent first;
  std::string end;  // what is known of it later
};

class Stories {
 public:
  void add(const LoggedEvent& e) {
    const std::string key = fmt::format("{} {} {}", e.pid, e.fd, e.peer);
    if (e.event == "connect" || e.event == "accept" || e.event == "fallback") {
      open_[key] = all_.size();
      all_.push_back({e, ""});
      return;
    }
    const auto found = open_.find(key);
    if (found == open_.end()) {
      all_.push_back({e, e.event == "close" ? "" : e.event});
      return;
    }
    Story& story = all_[found->second];
    if (e.event == "close") {
      story.end = fmt::format("; in the end {} ({})", describe_engine(e.engine), e.reason);
      open_.erase(found);
    } else {
      story.end = fmt::format("; {}: {}", e.event, e.reason);
    }
  }

  void print(const std::string& program) const {
    fmt::print(stderr, "ddprun: the connections of {}:\n", program);
    for (size_t i = 0; i < std::min(all_.size(), kMostLines); ++i) {
      const LoggedEvent& e = all_[i].first;
      fmt::print(stderr, "  {} {} {}: {}: {}{}\n", e.pid,
                 e.event == "fallback" ? "connect" : e.event, stat::printable(e.peer),
                 describe_verdict(e), stat::printable(e.reason), stat::printable(all_[i].end));
    }
    if (all_.empty()) fmt::print(stderr, "  none by TCP, or the library is not in it\n");
    if (all_.size() > kMostLines) print_counts();
  }

 private:
  void print_counts() const {
    fmt::print(stderr, "  and {} more; in all:\n", all_.size() - kMostLines);
    std::map<std::string, size_t> counts;
    for (const Story& s : all_)
      ++counts[fmt::format("{}: {}", describe_verdict(s.first), stat::printable(s.first.reason))];
    for (const auto& [what, count] : counts) fmt::print(stderr, "  {:>8} {}\n", count, what);
  }

  std::vector<Story> all_;
  std::map<std::string, size_t> open_;
};

// The value of NAME=value in a text that has a NUL behind each.
std::string variable_in(const std::string& environment, const std::string& name) {
  std::istringstream all(environment);
  for (std::string entry; std::getline(all, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return "";
}

std::string read_of(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int explain_absence(int pid) {
  std::error_code error;
  const std::string folder = fmt::format("/proc/{}", pid);
  if (!std::filesystem::exists(folder, error)) stop("there is no process {}", pid);
  const std::string program = std::filesystem::read_symlink(folder + "/exe", error);
  if (error) stop("process {} cannot be looked at: {}", pid, error.message());
  const Target target = examine_target({&program, 1});
  const bool is_asked = !variable_in(read_of(pid, "environ"), "LD_PRELOAD").empty();
  fmt::print("program   {} {}: without the library: {}\n", stat::printable(program), pid,
             target.finding == Target::Finding::kNotCovered ? target.reason
             : is_asked ? "it is another user's, or LD_PRELOAD had no effect"
                        : "it was not started by ddprun");
  return 1;
}

void print_connection(const stat::Connection& c) {
  const engine::ConnectionStatistics& d = c.data;
  fmt::print("{:<9} {} {} {}: {}: {}; {}{}{}\n", d.is_initiator ? "connect" : "accept",
             stat::address_text(d.local), d.is_initiator ? "->" : "<-",
             stat::address_text(d.remote), describe_engine(c.engine()), stat::printable(d.verdict),
             stat::printable(d.memory),
             d.failure.empty() ? "" : "; failed: ", stat::printable(d.failure));
}

}  // namespace

bool parse_event(const std::string& line, LoggedEvent& event) {
  std::array<char, 64> name{}, peer{}, mode{}, engine{};
  int at = 0;
  if (sscanf(line.c_str(), "ddpsock[%d] %63s fd=%d peer=%63s mode=%63[^ :] engine=%63[^ :]: %n",
             &event.pid, name.data(), &event.fd, peer.data(), mode.data(), engine.data(),
             &at) != 6 &&
      sscanf(line.c_str(), "ddpsock[%d] %63s fd=%d peer=%63s mode=%63[^ :]: %n", &event.pid,
             name.data(), &event.fd, peer.data(), mode.data(), &at) != 5)
    return false;
  if (at == 0) return false;
  event.event = name.data();
  event.peer = peer.data();
  event.mode = mode.data();
  event.engine = engine.data();
  event.reason = line.substr(static_cast<size_t>(at));
  return true;
}

int explain_after(const std::string& program, const std::function<void()>& execute) {
  const LogFolder folder;
  setenv("DDPSOCK_LOG", "info", 1);
  setenv("DDPSOCK_LOG_FILE", folder.log().c_str(), 1);
  fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) stop("fork: {}", strerror(errno));
  if (child == 0) {
    try {
      execute();
    } catch (const Failure& f) {
      fmt::print(stderr, "ddprun: {}\n", f.message);
      fflush(nullptr);
      _exit(f.status);
    }
  }
  const int status = wait_for(child);
  Stories stories;
  std::ifstream log(folder.log());
  LoggedEvent event;
  for (std::string line; std::getline(log, line);)
    if (parse_event(line, event)) stories.add(event);
  stories.print(program);
  return status;
}

int explain_process(int pid) {
  auto snapshot = stat::take_snapshot();
  if (!snapshot) stop("/proc: {}", strerror(errno));
  stat::filter(*snapshot, {std::to_string(pid)});
  if (snapshot->processes.empty()) return explain_absence(pid);
  const stat::ProcessRow& process = snapshot->processes.front();
  const std::string rules = variable_in(read_of(pid, "environ"), "DDPSOCK_RULES");
  fmt::print("program   {} {}: has the library\n", stat::printable(process.program), pid);
  fmt::print("rules     {}\n", rules.empty() ? "none" : stat::printable(rules));
  for (const stat::Connection& c : snapshot->connections) print_connection(c);
  if (!process.obstacle.empty())
    fmt::print("note      {}\n", stat::printable(process.obstacle));
  else if (snapshot->connections.empty())
    fmt::print("note      no connection in DDPMODE\n");
  if (process.plain > 0)
    fmt::print("plain     {} connections so far, the last: {}\n", process.plain,
               stat::printable(process.plain_reason));
  return 0;
}

}  // namespace ddpsock::shim
