// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "actors.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "act.h"
#include "base/kernel_call.h"
#include "world.h"

namespace ddpsock::sequences {
namespace {

thread_local sigjmp_buf way_out;
thread_local volatile bool may_jump = false;

void count(int) {
  ++world->handled_signals;
}

void count_and_jump(int) {
  ++world->handled_signals;
  if (!may_jump) return;
  may_jump = false;
  siglongjmp(way_out, 1);
}

void on_signal(int signal, void (*handler)(int), int flags) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

// Until when the call ends by itself.
int timeout_of(const Op& op) {
  const int timeout = op.kind == Kind::kPoll        ? op.argument[1]
                      : op.kind == Kind::kEpollWait ? op.argument[2]
                                                    : 0;
  if (timeout > 0) return timeout;
  if (op.kind != Kind::kReceive) return 0;
  const Direction* way = incoming(object_of(fd_of(op.argument[0])));
  return way == nullptr ? 0 : way->receive_timeout_ms.load();
}

void obey(Actor& actor, const Op& op) {
  Answer answer(actor.text);
  if (op.kind == Kind::kEnd) {
    op.argument[1] == static_cast<int>(HowToEnd::kExit)
        ? _exit(0)
        : static_cast<void>(base::kernel_call(SYS_exit_group, 0));
  }
  actor.timeout_ms = timeout_of(op);
  if (sigsetjmp(way_out, 1) != 0) {
    // Where the C library was in a call that can be cancelled, and did not see its end.
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, nullptr);
    answer.add("jumped out");
    break_off(actor);
    return;
  }
  may_jump = true;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  act(op, answer);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  may_jump = false;
}

void report(Actor& actor) {
  actor.takes = actor.sees = actor.fills = 0;
  actor.timeout_ms = 0;
  actor.done = actor.ordered.load();
  wake(actor.done);
}

[[noreturn]] void obey_for_good(int number) {
  Actor& actor = world->actors[static_cast<size_t>(number)];
  current_actor = number;
  const pid_t parent = getppid();
  for (uint32_t handled = actor.done;;) {
    uint32_t asked = actor.asked;
    while (static_cast<int32_t>(asked - handled) <= 0) {
      wait_for_change(actor.asked, asked, 1'000'000);
      if (is_process(number) && getppid() != parent) base::kernel_call(SYS_exit_group, 0);
      asked = actor.asked;
    }
    handled = asked;
    obey(actor, world->script.ops[actor.op]);
    report(actor);
  }
}

}  // namespace

int signal_of(HowToSignal how) {
  switch (how) {
    case HowToSignal::kRestart:
      return SIGUSR1;
    case HowToSignal::kInterrupt:
      return SIGUSR2;
    default:
      return SIGRTMIN;
  }
}

int signal_of_io() {
  return SIGRTMIN + 1;
}

void handle_signals() {
  on_signal(signal_of(HowToSignal::kRestart), count, SA_RESTART);
  on_signal(signal_of(HowToSignal::kInterrupt), count, 0);
  on_signal(signal_of(HowToSignal::kJump), count_and_jump, SA_RESTART);
  signal(SIGPIPE, SIG_IGN);
  // Those that come behind, and those that a full queue makes of them.
  signal(signal_of_io(), SIG_IGN);
  signal(SIGIO, SIG_IGN);
}

void obey_here(int number) {
  Actor& actor = world->actors[static_cast<size_t>(number)];
  const int before = current_actor;
  current_actor = number;
  Answer answer(actor.text);
  act(world->script.ops[actor.op], answer);
  current_actor = before;
  report(actor);
}

void* actor_thread(void* number) {
  const int who = static_cast<int>(reinterpret_cast<intptr_t>(number));
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  Actor& actor = world->actors[static_cast<size_t>(who)];
  actor.process = getpid();
  actor.thread = gettid();
  actor.exists = true;
  obey_for_good(who);
}

void live_as(int actor) {
  myself.actor = actor;
  obey_for_good(actor);
}

void live_after_exec(int number) {
  map_world();
  handle_signals();
  myself = world->handed_over;
  for (int& fd : myself.slots)
    if (fd >= 0 && base::kernel_call(SYS_fcntl, fd, F_GETFD) < 0) fd = -1;
  Actor& actor = world->actors[static_cast<size_t>(number)];
  Answer(actor.text).add("executed");
  report(actor);
  live_as(number);
}

}  // namespace ddpsock::sequences
