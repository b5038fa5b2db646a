// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program that is executed while streams are open gets their state: a descriptor and the variable
// that names it. Without streams each call is libc's, unchanged. Everything here may run in a
// signal handler or in a vfork child, whose memory is its parent's: no allocation, nothing written
// but the stack and what all processes of the family share.
//
// While a posix_spawn is at work the descriptor is inheritable; a fork and exec in another thread
// then leaks it into a program that has no use for it.
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "engine/stream.h"
#include "shim/calls.h"
#include "shim/exec_environment.h"
#include "shim/exec_target.h"
#include "shim/fd_table.h"
#include "shim/log.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

using Successor = engine::StreamEngine::Successor;

// More would not fit beside their text into what the kernel takes by default.
constexpr size_t kMaxEntries = 65536;

bool is_anything_to_carry() {
  return is_any_ours() && engine::user_stream_engine().handover_fd() >= 0;
}

void set_inheritable(int fd, bool is_inheritable) {
  if (fd >= 0) real.fcntl(fd, F_SETFD, is_inheritable ? 0 : FD_CLOEXEC);
}

// May the program find the streams? Says in the log which descriptors it will have without DDPMODE.
bool may_carry(int directory, const char* path, char* const* environment) {
  if (!is_library_preloaded(environment)) {
    log_exec(path, "LD_PRELOAD does not name libddpsock");
    return false;
  }
  if (is_logging()) {
    const int saved_errno = errno;
    const char* why = why_not_preloaded(directory, path);
    if (why != nullptr) log_exec(path, why);
    errno = saved_errno;
  }
  // A static program may yet start one that is not.
  return count_entries(environment) <= kMaxEntries;
}

// What the program inherits it must find in the kernel: it has no part in memory shared with a
// peer. A descriptor that a vfork child has closed is not inherited.
void leave_memory_for_program() {
  for (int fd = 0; fd < fds_end(); ++fd) {
    const SocketUse use(fd);
    if (!use || !has_live_stream(use.phase())) continue;
    const int flags = real.fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
      use->stream.load(std::memory_order_acquire)->leave_memory(fd);
  }
}

// run(environment, child) is the real call, with one variable more; it leaves the pid of a new
// process in `child`.
template <typename Run>
int run_carrying(int directory, const char* path, char* const* environment, Successor successor,
                 Run run) {
  pid_t child = 0;
  if (!may_carry(directory, path, environment)) return run(environment, child);
  leave_memory_for_program();
  engine::StreamEngine& engine = engine::user_stream_engine();
  const engine::StreamEngine::Handover handover = engine.begin_handover(successor);
  // Even a closed one tells the number under which the parent may have it.
  HandoverEntry entry(handover.fd >= 0 ? handover.fd : engine.handover_fd());
  const auto extended =
      static_cast<char**>(alloca((count_entries(environment) + 2) * sizeof(char*)));
  extend_environment(extended, environment, entry.text());
  set_inheritable(handover.fd, true);
  const int result = run(extended, child);
  const int saved_errno = errno;
  set_inheritable(handover.fd, false);
  engine.end_handover(handover, child);
  errno = saved_errno;
  return result;
}

template <typename Exec>
int exec_carrying(int directory, const char* path, char* const* environment, Exec exec) {
  return run_carrying(directory, path, environment, Successor::kThisProcess,
                      [&](char* const* extended, pid_t&) { return exec(extended); });
}

template <typename Spawn>
int spawn_carrying(const char* path, char* const* environment, pid_t* child, Spawn spawn) {
  return run_carrying(AT_FDCWD, path, environment, Successor::kChild,
                      [&](char* const* extended, pid_t& spawned) {
                        pid_t pid = 0;
                        const int error = spawn(extended, &pid);
                        if (error == 0) spawned = pid;
                        if (error == 0 && child != nullptr) *child = pid;
                        return error;
                      });
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
  if (!is_anything_to_carry()) return real.execve(path, arguments, environment);
  return exec_carrying(AT_FDCWD, path, environment, [=](char* const* extended) {
    return real.execve(path, arguments, extended);
  });
}

int own_execveat(int directory, const char* path, char* const* arguments, char* const* environment,
                 int flags) {
  if (!is_anything_to_carry()) return real.execveat(directory, path, arguments, environment, flags);
  return exec_carrying(directory, path, environment, [=](char* const* extended) {
    return real.execveat(directory, path, arguments, extended, flags);
  });
}

int own_fexecve(int fd, char* const* arguments, char* const* environment) {
  if (!is_anything_to_carry()) return real.fexecve(fd, arguments, environment);
  return exec_carrying(fd, "", environment, [=](char* const* extended) {
    return real.fexecve(fd, arguments, extended);
  });
}

int own_execv(const char* path, char* const* arguments) {
  if (!is_anything_to_carry()) return real.execv(path, arguments);
  return own_execve(path, arguments, environ);
}

int own_execvp(const char* file, char* const* arguments) {
  if (!is_anything_to_carry()) return real.execvp(file, arguments);
  return own_execvpe(file, arguments, environ);
}

int own_execvpe(const char* file, char* const* arguments, char* const* environment) {
  if (!is_anything_to_carry()) return real.execvpe(file, arguments, environment);
  return exec_carrying(AT_FDCWD, file, environment, [=](char* const* extended) {
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
  if (!is_anything_to_carry())
    return real.posix_spawn(child, path, actions, attributes, arguments, environment);
  return spawn_carrying(path, environment, child, [=](char* const* extended, pid_t* pid) {
    return real.posix_spawn(pid, path, actions, attributes, arguments, extended);
  });
}

int own_posix_spawnp(pid_t* child, const char* file, const posix_spawn_file_actions_t* actions,
                     const posix_spawnattr_t* attributes, char* const* arguments,
                     char* const* environment) {
  if (!is_anything_to_carry())
    return real.posix_spawnp(child, file, actions, attributes, arguments, environment);
  return spawn_carrying(file, environment, child, [=](char* const* extended, pid_t* pid) {
    return real.posix_spawnp(pid, file, actions, attributes, arguments, extended);
  });
}

}  // namespace ddpsock::shim
