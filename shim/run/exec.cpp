// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program of the same user that inherits streams gets their state: a descriptor and the variable
// that names it (doc/decisions/0048). A program without the library may inherit a listener: its
// clients must not count on the library any more (listeners.h). Without sockets of ours each call
// is libc's, unchanged.
// Everything here may run in a signal handler or in a vfork child, whose memory is its parent's: no
// allocation, nothing written but the stack and what all processes of the family share.
//
// While a posix_spawn is at work the descriptor is inheritable; a fork and exec in another thread
// then leaks it into a program that has no use for it.
#include <alloca.h>
#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/keep_errno.h"
#include "shim/calls.h"
#include "shim/calls/handing_out.h"
#include "shim/calls/leaving.h"
#include "shim/calls/listeners.h"
#include "shim/connection.h"
#include "shim/exec_environment.h"
#include "shim/fd_table.h"
#include "shim/log.h"
#include "shim/pollers/watched_sets.h"
#include "shim/real.h"
#include "shim/run/exec_target.h"
#include "shim/run/inherit.h"
#include "shim/run/inherited_streams.h"
#include "shim/run/shell_command.h"
#include "shim/run/spawn_actions.h"
#include "stream/stream.h"

namespace ddpsock::shim {
namespace {

using Successor = engine::StreamEngine::Successor;

// More would not fit beside their text into what the kernel takes by default.
constexpr size_t kMaxEntries = 65536;

void set_inheritable(int fd, bool is_inheritable) {
  if (fd >= 0) real.fcntl(fd, F_SETFD, is_inheritable ? 0 : FD_CLOEXEC);
}

// A program that is about to be executed, and how.
struct Execution {
  const ExecTarget& target;
  char* const* environment;
  const char* why;  // it will be without the library, or null
  LeavingListeners& leaving;
  Successor successor = Successor::kThisProcess;
  const posix_spawn_file_actions_t* actions = nullptr;

  // Does what executes it go on? A forked child's parent does.
  bool is_beside() const { return successor == Successor::kChild || !is_executed_itself(); }
};

bool has_streams() {
  for (int fd = 0; fd < fds_end(); ++fd)
    if (is_stream(fd)) return true;
  return false;
}

// Why the program will be without the library; null if it will have it. errno is kept.
const char* why_without_library(const ExecTarget& target, char* const* environment) {
  if (!is_library_preloaded(environment)) return "LD_PRELOAD does not name libddpsock";
  const base::KeepErrno keep;
  return look_at(target).why_not_preloaded;
}

// Why what streams are made of may not be shared with the program; null if it may.
const char* why_not_shared(const Execution& e) {
  const engine::StreamEngine& engine = engine::user_stream_engine();
  if (engine.handover_fd() < 0) return "their state is in no file";
  if (!engine.may_hand_over()) return "the program is another user's or group's";
  if (count_entries(e.environment) > kMaxEntries) return "the environment is too large";
  return nullptr;
}

// A program that is started for a connection would take FPDUs for what its client says.
void reset_given(const Execution& e, const InheritedStreams& streams) {
  if (is_doubtful(e.why) || !look_at(e.target).may_be_executed) return;
  streams.visit([&](int fd, int at) {
    if (streams.is_meant(fd)) reset_handed_out(fd, at);
  });
}

// May the program find the streams? One that may not, or has not the library, gets plain
// connections; what cannot be made plain is logged. REQUIRES: it inherits some.
bool may_carry(const Execution& e, const InheritedStreams& streams) {
  const char* why_not = why_not_shared(e);
  const char* why = e.why != nullptr ? e.why : why_not;
  if (why == nullptr) return true;
  if (e.why != nullptr) streams.visit([&](int fd, int) { e.leaving.note_given(fd); });
  if (!leave_ddp_mode_each([&](auto visit) { streams.visit(visit); }, why, !is_vfork_child())) {
    log_exec(e.target.path, why);
    if (e.why != nullptr) reset_given(e, streams);
  }
  // A static program may yet start one that is not.
  return why_not == nullptr && is_library_preloaded(e.environment);
}

// What the program inherits it must find in the kernel: it has no part in memory shared with a
// peer.
void leave_memory_for_program(const InheritedStreams& streams) {
  streams.visit([](int fd, int at) {
    const SocketUse use(fd);
    if (!use || !has_live_stream(use.phase())) return;
    engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
    if (stream.is_behind(at)) stream.leave_memory(at);
  });
}

// The other threads of a process that executes a program end where they are, the library's own
// among them. Who ends at work on a stream leaves a connection that fails, the program's or a
// relative's. A vfork child executes for itself alone.
class OtherCallsStopped {
 public:
  explicit OtherCallsStopped(const Execution& e)
      : is_needed_(e.successor == Successor::kThisProcess && !is_vfork_child()) {
    if (!is_needed_) return;
    engine::user_stream_engine().stop_calls();
    const Time give_up = base::now() + engine::Stream::kMostCallTime;
    for (int fd = 0; fd < fds_end(); ++fd) {
      if (!is_stream(fd)) continue;
      const SocketUse use(fd);
      if (use && has_live_stream(use.phase()))
        use->stream.load(std::memory_order_acquire)->await_calls(give_up);
    }
  }
  ~OtherCallsStopped() {
    if (is_needed_) engine::user_stream_engine().resume_calls();
  }
  OtherCallsStopped(const OtherCallsStopped&) = delete;
  OtherCallsStopped& operator=(const OtherCallsStopped&) = delete;

 private:
  const bool is_needed_;
};

// Nothing of what the family shares is the program's.
template <typename Run>
int run_apart(const Execution& e, Run run) {
  pid_t child = 0;
  if (e.successor == Successor::kThisProcess) engine::user_stream_engine().keep_handover();
  const OtherCallsStopped stopped(e);
  return run(e.environment, child);
}

// run(environment, child) is the real call, with one variable more, the last; it leaves the pid of
// a new process in `child`.
template <typename Run>
int run_carrying(const Execution& e, Run run) {
  pid_t child = 0;
  tell_kernel();  // it may have sets of ours, and nothing else of them
  if (!has_streams()) return run(e.environment, child);
  const InheritedStreams streams(e.actions, e.is_beside());
  if (!streams.is_any() || !may_carry(e, streams)) return run_apart(e, run);
  leave_memory_for_program(streams);
  engine::StreamEngine& engine = engine::user_stream_engine();
  const engine::StreamEngine::Handover handover = engine.begin_handover(e.successor);
  // Even a closed one tells the number under which the parent may have it.
  const int handover_fd = handover.fd >= 0 ? handover.fd : engine.handover_fd();
  HandoverEntry entry({handover_fd, streams.strayed()});
  const auto extended =
      static_cast<char**>(alloca((count_entries(e.environment) + 2) * sizeof(char*)));
  extend_environment(extended, e.environment, entry.text());
  set_inheritable(handover.fd, true);
  const int result = [&] {
    const OtherCallsStopped stopped(e);
    return run(extended, child);
  }();
  const base::KeepErrno keep;
  set_inheritable(handover.fd, false);
  engine.end_handover(handover, child);
  return result;
}

// REQUIRES: is_any_ours().
template <typename Exec>
int exec_carrying(const ExecTarget& target, char* const* environment, Exec exec) {
  LeavingListeners leaving(Escape::kGone);
  const char* why = why_without_library(target, environment);
  if (why != nullptr) leaving.note_inheritable(false);
  const int result = run_carrying({target, environment, why, leaving},
                                  [&](char* const* extended, pid_t&) { return exec(extended); });
  leaving.take_back();
  return result;
}

// REQUIRES: is_any_ours().
template <typename Spawn>
int spawn_carrying(const ExecTarget& target, const posix_spawn_file_actions_t* actions,
                   char* const* environment, pid_t* child, Spawn spawn) {
  LeavingListeners leaving(Escape::kGone);
  const char* why = why_without_library(target, environment);
  if (why != nullptr) leaving.note_inheritable(actions != nullptr);
  const int error = run_carrying({target, environment, why, leaving, Successor::kChild, actions},
                                 [&](char* const* extended, pid_t& spawned) {
                                   pid_t pid = 0;
                                   const int failed = spawn(extended, &pid);
                                   if (failed == 0) spawned = pid;
                                   if (failed == 0 && child != nullptr) *child = pid;
                                   return failed;
                                 });
  if (error != 0) leaving.take_back();
  return error;
}

constexpr ExecTarget kShell{AT_FDCWD, "/bin/sh"};

// libc starts a shell, past any preload, with the program's environment: what tells of streams is
// in the command. start(command, child) is the real call; `has_failed` says so of its result.
template <typename Start, typename HasFailed>
auto start_shell(const char* command, Start start, HasFailed has_failed) {
  LeavingListeners leaving(Escape::kGone);
  const char* why = why_without_library(kShell, environ);
  if (why != nullptr) leaving.note_inheritable(false);
  const Execution e{kShell, environ, why, leaving, Successor::kChild};
  decltype(start(command, std::declval<pid_t&>())) result;
  if (!InheritedStreams(nullptr, true).is_any()) {
    pid_t child = 0;
    result = start(command, child);
  } else {
    run_carrying(e, [&](char* const* extended, pid_t& child) {
      if (extended == environ) {
        result = start(command, child);
        return 0;
      }
      const ShellCommand text(extended[count_entries(extended) - 1], command);
      result = start(text.get(), child);
      return 0;
    });
  }
  if (has_failed(result)) leaving.take_back();
  return result;
}

// The arguments of execl and its like. The list ends with a null, which is taken from it too.
size_t count_arguments(const char* first, va_list rest) {
  va_list look;
  va_copy(look, rest);
  size_t count = 0;
  for (const char* argument = first; argument != nullptr; argument = va_arg(look, const char*))
    ++count;
  va_end(look);
  return count;
}

void collect_arguments(char** room, const char* first, va_list rest) {
  const char* argument = first;
  while ((*room++ = const_cast<char*>(argument)) != nullptr) argument = va_arg(rest, const char*);
}

}  // namespace

int own_execve(const char* path, char* const* arguments, char* const* environment) {
  if (!is_any_ours()) return real.execve(path, arguments, environment);
  return exec_carrying({AT_FDCWD, path}, environment, [=](char* const* extended) {
    return real.execve(path, arguments, extended);
  });
}

int own_execveat(int directory, const char* path, char* const* arguments, char* const* environment,
                 int flags) {
  if (!is_any_ours()) return real.execveat(directory, path, arguments, environment, flags);
  return exec_carrying({directory, path}, environment, [=](char* const* extended) {
    return real.execveat(directory, path, arguments, extended, flags);
  });
}

int own_fexecve(int fd, char* const* arguments, char* const* environment) {
  if (!is_any_ours()) return real.fexecve(fd, arguments, environment);
  return exec_carrying({fd, ""}, environment, [=](char* const* extended) {
    return real.fexecve(fd, arguments, extended);
  });
}

int own_execv(const char* path, char* const* arguments) {
  if (!is_any_ours()) return real.execv(path, arguments);
  return own_execve(path, arguments, environ);
}

int own_execvp(const char* file, char* const* arguments) {
  if (!is_any_ours()) return real.execvp(file, arguments);
  return own_execvpe(file, arguments, environ);
}

int own_execvpe(const char* file, char* const* arguments, char* const* environment) {
  if (!is_any_ours()) return real.execvpe(file, arguments, environment);
  return exec_carrying({AT_FDCWD, file, true, true}, environment, [=](char* const* extended) {
    return real.execvpe(file, arguments, extended);
  });
}

int own_execl(const char* path, const char* first, va_list rest) {
  const auto arguments =
      static_cast<char**>(alloca((count_arguments(first, rest) + 1) * sizeof(char*)));
  collect_arguments(arguments, first, rest);
  return own_execv(path, arguments);
}

int own_execlp(const char* file, const char* first, va_list rest) {
  const auto arguments =
      static_cast<char**>(alloca((count_arguments(first, rest) + 1) * sizeof(char*)));
  collect_arguments(arguments, first, rest);
  return own_execvp(file, arguments);
}

int own_execle(const char* path, const char* first, va_list rest) {
  const auto arguments =
      static_cast<char**>(alloca((count_arguments(first, rest) + 1) * sizeof(char*)));
  collect_arguments(arguments, first, rest);
  return own_execve(path, arguments, va_arg(rest, char* const*));
}

int own_posix_spawn(pid_t* child, const char* path, const posix_spawn_file_actions_t* actions,
                    const posix_spawnattr_t* attributes, char* const* arguments,
                    char* const* environment) {
  if (!is_any_ours())
    return real.posix_spawn(child, path, actions, attributes, arguments, environment);
  return spawn_carrying(
      {AT_FDCWD, path}, actions, environment, child, [=](char* const* extended, pid_t* pid) {
        return real.posix_spawn(pid, path, actions, attributes, arguments, extended);
      });
}

int own_posix_spawnp(pid_t* child, const char* file, const posix_spawn_file_actions_t* actions,
                     const posix_spawnattr_t* attributes, char* const* arguments,
                     char* const* environment) {
  if (!is_any_ours())
    return real.posix_spawnp(child, file, actions, attributes, arguments, environment);
  return spawn_carrying(
      {AT_FDCWD, file, true}, actions, environment, child, [=](char* const* extended, pid_t* pid) {
        return real.posix_spawnp(pid, file, actions, attributes, arguments, extended);
      });
}

int own_system(const char* command) {
  if (!is_any_ours() || command == nullptr) return real.system(command);
  return start_shell(
      command, [](const char* text, pid_t&) { return real.system(text); },
      [](int status) { return status == -1; });
}

FILE* own_popen(const char* command, const char* mode) {
  if (!is_any_ours() || command == nullptr) return real.popen(command, mode);
  return start_shell(
      command,
      [=](const char* text, pid_t& child) {
        FILE* file = real.popen(text, mode);
        if (file != nullptr) child = child_behind(file);
        return file;
      },
      [](FILE* file) { return file == nullptr; });
}

}  // namespace ddpsock::shim
