// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "act.h"
#include "base/kernel_call.h"

namespace ddpsock::sequences {
namespace {

pid_t make_child(HowToFork how) {
  switch (how) {
    case HowToFork::kFork:
      return fork();
    case HowToFork::kForkAlone:
      return _Fork();
    case HowToFork::kSyscallClone:
      return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    default:
      return static_cast<pid_t>(base::kernel_call(SYS_clone, SIGCHLD));
  }
}

void make_process(const Op& op, Answer& answer) {
  const int who = op.argument[0];
  Actor& actor = world->actors[static_cast<size_t>(who)];
  if (actor.exists || is_process(myself.actor)) return answer.add("is there");
  actor.done = actor.ordered.load();
  const pid_t child = make_child(static_cast<HowToFork>(op.argument[1]));
  if (child == 0) live_as(who);
  if (child < 0) return answer.add_result(child);
  actor.process = child;
  actor.thread = child;
  actor.is_stopped = false;
  actor.exists = true;
  answer.add("a child");
}

// What is shared with the parent: its memory, and so what it knows of its descriptors; what is not:
// the descriptors.
void make_vfork_child(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]);
  const Object object = object_of(fd);
  Direction* way = outgoing(object);
  if (!is_roomy(object)) return answer.add("not certain");
  const char* bytes = way == nullptr ? "" : bytes_at(object.connection, object.side, way->sent, 5);
  ssize_t result = -1;
  const int what = op.argument[1];
  const pid_t child = vfork();
  if (child == 0) {
    if (what == 1) result = close(fd);
    if (what == 2) result = write(fd, bytes, way == nullptr ? 0 : 5);
    if (what == 3) result = dup2(STDERR_FILENO, fd);
    _exit(0);
  }
  if (child < 0) return answer.add_result(child);
  int status = -1;
  base::kernel_call(SYS_wait4, child, &status, 0, nullptr);
  if (what == 2 && result > 0 && way != nullptr) way->sent += static_cast<uint64_t>(result);
  answer.add("status %#x, %zd in the child", static_cast<unsigned>(status), result);
}

void execute(const Op& op, Answer& answer) {
  static char name[] = "sequences", flag[] = "--actor";
  char number[] = {static_cast<char>('0' + myself.actor), '\0'};
  char* const arguments[] = {name, flag, number, nullptr};
  if (op.argument[0] != 0) unsetenv("LD_PRELOAD");
  world->handed_over = myself;
  answer.add_result(execv("/proc/self/exe", arguments));
}

}  // namespace

void act_on_processes(const Op& op, Answer& answer) {
  switch (op.kind) {
    case Kind::kFork:
      return make_process(op, answer);
    case Kind::kVfork:
      return make_vfork_child(op, answer);
    default:
      return execute(op, answer);
  }
}

}  // namespace ddpsock::sequences
