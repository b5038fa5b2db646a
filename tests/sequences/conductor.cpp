// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "conductor.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "act.h"
#include "actors.h"
#include "base/kernel_call.h"
#include "calls.h"

namespace ddpsock::sequences {
namespace {

constexpr int kHangMs = 4000;
// The first glance costs most calls a wait that ends by time, if it is early.
constexpr int kFirstGlanceUs = 150, kGlanceUs = 40;
constexpr int kGlances = 2;    // asleep in each of them: asleep
constexpr int kLookUs = 2000;  // at who cannot be asleep, but dead

Actor& actor_at(int actor) {
  return world->actors[static_cast<size_t>(actor)];
}

void ask(Actor& actor) {
  actor.asked = actor.ordered.load();
  wake(actor.asked);
}

// May it sleep until another acts? All others have to end by themselves.
bool may_sleep(const Op& op) {
  switch (op.kind) {
    case Kind::kSend:
    case Kind::kReceive:
      return !takes_flags(op.argument[3]) || (op.argument[2] & MSG_DONTWAIT) == 0;
    case Kind::kConnect:
    case Kind::kAccept:
    case Kind::kSplice:
    case Kind::kSendFile:
      return true;
    case Kind::kPoll:
      return op.argument[1] < 0;
    case Kind::kEpollWait:
    case Kind::kAwait:
      return op.argument[2] < 0;
    default:
      return false;
  }
}

bool is_conducted(Kind kind) {
  return kind >= Kind::kSignal;
}

}  // namespace

Conductor::Conductor() {
  for (int i = 0; i < kThreads; ++i) start_thread(i);
  // The kernel's default adds more to a glance than it lasts. For this thread alone.
  base::kernel_call(SYS_prctl, PR_SET_TIMERSLACK, 1);
}

void Conductor::start_thread(int actor) {
  Seat& seat = seats_[static_cast<size_t>(actor)];
  Actor& shared = actor_at(actor);
  shared.done = shared.ordered.load();
  shared.exists = false;
  break_off(shared);
  if (pthread_create(&seat.thread, nullptr, actor_thread,
                     reinterpret_cast<void*>(static_cast<intptr_t>(actor))) != 0)
    abort();
  while (!shared.exists) sched_yield();
  base::kernel_call(SYS_close, seat.status_fd);
  seat.status_fd = open_status(shared.process, shared.thread);
  seat.is_busy = false;
}

bool Conductor::run() {
  was_killed_in_a_call_ = false;
  for (size_t i = 0; i < world->script.count && !is_lost_; ++i) {
    world->step = static_cast<uint32_t>(i);
    run_op(i);
    if (world->patience_ms > 0) sleep_us(world->patience_ms * 1000);
    settle();
  }
  return clean_up() && !is_lost_;
}

void Conductor::run_op(size_t index) {
  const Op& op = world->script.ops[index];
  const int actor = op.actor;
  if (is_conducted(op.kind)) {
    world->say("%zu %s = ", index, to_text(op).c_str());
    conduct(op);
    world->say("\n");
    return;
  }
  world->say("%zu %s = ", index, to_text(op).c_str());
  if (!actor_at(actor).exists) {
    world->say("nobody\n");
  } else if (actor_at(actor).is_stopped) {
    world->say("stopped\n");
  } else if (seats_[static_cast<size_t>(actor)].is_busy) {
    world->say("busy\n");
  } else {
    order(index);
  }
}

void Conductor::order(size_t index) {
  const int who = world->script.ops[index].actor;
  Seat& seat = seats_[static_cast<size_t>(who)];
  Actor& actor = actor_at(who);
  seat.op = index;
  seat.is_busy = true;
  actor.op = static_cast<uint32_t>(index);
  ++actor.ordered;
  // Two changes of threads less: what does not sleep is as good as in the actor's own.
  if (who == 0 && !may_sleep(world->script.ops[index])) {
    obey_here(who);
  } else {
    ask(actor);
  }
  switch (wait_for(who)) {
    case State::kDone:
      seat.is_busy = false;
      world->say("%s\n", actor.text.data());
      break;
    case State::kAsleep:
      world->say("asleep\n");
      break;
    case State::kHangs:
      world->say("hangs\n");
      is_lost_ = true;
      break;
    case State::kDead:
      world->say("died\n");
      let_go(who);
  }
  look_at_new_processes();
}

void Conductor::look_at_new_processes() {
  for (int i = kThreads; i < kActors; ++i) {
    Seat& seat = seats_[static_cast<size_t>(i)];
    if (actor_at(i).exists && seat.status_fd < 0)
      seat.status_fd = open_status(actor_at(i).process, actor_at(i).thread);
  }
}

// The library finds out by looks that a call of a process that was killed will not go on.
int Conductor::patience_ms() const {
  constexpr int kForTheDead = 30;
  return world->patience_ms > 0 && was_killed_in_a_call_ ? kForTheDead : world->patience_ms;
}

Conductor::State Conductor::wait_for(int who) {
  Actor& actor = actor_at(who);
  const Seat& seat = seats_[static_cast<size_t>(who)];
  const Op& op = world->script.ops[seat.op];
  const int64_t start = now_ms();
  int64_t asleep_since = start;
  int glance_us = kFirstGlanceUs;
  for (int glances = 0;; glance_us = kGlanceUs) {
    const uint32_t done = actor.done;
    if (done == actor.ordered) return State::kDone;
    const bool may_be_quiet = (may_sleep(op) || actor.is_stopped) && actor.timeout_ms == 0;
    wait_for_change(actor.done, done, may_be_quiet ? glance_us : kLookUs);
    if (actor.done == actor.ordered) return State::kDone;
    if (is_process(who) && is_dead(who)) return State::kDead;
    const int64_t now = now_ms();
    if (now - start > kHangMs) return State::kHangs;
    const bool is_quiet = may_be_quiet && actor.timeout_ms == 0 && is_asleep(seat.status_fd);
    if (!is_quiet) glances = 0;
    if (glances == 0) asleep_since = now;
    if (is_quiet && ++glances >= kGlances && now - asleep_since >= patience_ms())
      return State::kAsleep;
  }
}

void Conductor::settle() {
  for (int i = 0; i < kActors && !is_lost_; ++i) {
    Seat& seat = seats_[static_cast<size_t>(i)];
    if (!seat.is_busy) continue;
    // Loopback wakes whom it has something for before the call that sent it returns.
    if (world->patience_ms == 0 && actor_at(i).done != actor_at(i).ordered &&
        is_asleep(seat.status_fd))
      continue;
    const State state = wait_for(i);
    if (state == State::kAsleep) continue;
    if (state == State::kDone) {
      world->say("%zu woke: %s\n", seat.op, actor_at(i).text.data());
      seat.is_busy = false;
    } else if (state == State::kDead) {
      world->say("%zu died\n", seat.op);
      let_go(i);
    } else {
      world->say("%zu hangs\n", seat.op);
      is_lost_ = true;
    }
  }
}

bool Conductor::is_dead(int actor) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(actor_at(actor).process.load()), &info,
                WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

void Conductor::let_go(int actor) {
  Seat& seat = seats_[static_cast<size_t>(actor)];
  waitpid(actor_at(actor).process, nullptr, 0);
  base::kernel_call(SYS_close, seat.status_fd);
  seat.status_fd = -1;
  seat.is_busy = false;
  actor_at(actor).exists = false;
  break_off(actor_at(actor));
}

void Conductor::conduct(const Op& op) {
  const int who = op.argument[0];
  if (!actor_at(who).exists) return world->say("nobody");
  switch (op.kind) {
    case Kind::kSignal:
      return interrupt(who, signal_of(static_cast<HowToSignal>(op.argument[1])));
    case Kind::kCancel:
      return cancel(who);
    case Kind::kEnd:
      return end_process(who, static_cast<HowToEnd>(op.argument[1]));
    default:
      return stop_process(who, op.argument[1] != 0);
  }
}

void Conductor::interrupt(int who, int signal) {
  Actor& actor = actor_at(who);
  if (!seats_[static_cast<size_t>(who)].is_busy || actor.is_stopped) return world->say("idle");
  const int handled = world->handled_signals;
  base::kernel_call(SYS_tgkill, actor.process.load(), actor.thread.load(), signal);
  const int64_t deadline = now_ms() + kHangMs;
  while (world->handled_signals == handled && now_ms() < deadline) sched_yield();
  world->say(world->handled_signals == handled ? "never handled" : "handled");
}

void Conductor::cancel(int who) {
  Seat& seat = seats_[static_cast<size_t>(who)];
  // The bare system call is no cancellation point.
  const Op& op = world->script.ops[seat.op];
  const bool is_bare = op.kind == Kind::kAwait || to_text(op).find("syscall(") != std::string::npos;
  if (is_process(who) || !seat.is_busy || is_bare) return world->say("idle");
  pthread_cancel(seat.thread);
  timespec deadline{};
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += kHangMs / 1000;
  if (pthread_timedjoin_np(seat.thread, nullptr, &deadline) != 0) {
    is_lost_ = true;
    return world->say("hangs");
  }
  start_thread(who);
  world->say("cancelled");
}

void Conductor::end_process(int who, HowToEnd how) {
  Actor& actor = actor_at(who);
  if (how == HowToEnd::kKill || seats_[static_cast<size_t>(who)].is_busy || actor.is_stopped) {
    was_killed_in_a_call_ |= seats_[static_cast<size_t>(who)].is_busy;
    kill(actor.process, SIGKILL);
  } else {
    actor.op = world->step.load();
    ++actor.ordered;
    ask(actor);
  }
  let_go(who);
  world->say("ended");
}

void Conductor::stop_process(int who, bool is_stop) {
  Actor& actor = actor_at(who);
  if (actor.is_stopped == is_stop) return world->say("already");
  kill(actor.process, is_stop ? SIGSTOP : SIGCONT);
  int status = 0;
  waitpid(actor.process, &status, is_stop ? WUNTRACED : WCONTINUED);
  actor.is_stopped = is_stop;
  world->say("status %#x", static_cast<unsigned>(status));
}

bool Conductor::rouse(int thread) {
  Actor& actor = actor_at(thread);
  for (int tries = 0; tries < 3 && actor.done != actor.ordered; ++tries) {
    base::kernel_call(SYS_tgkill, getpid(), actor.thread.load(), SIGUSR2);
    wait_for_change(actor.done, actor.done, 2000);
  }
  return actor.done == actor.ordered;
}

// Linux holds a pipe while a splice into it sleeps: its close would sleep too, and for good.
void Conductor::rouse_splicers() {
  for (int i = 0; i < kThreads; ++i) {
    const Seat& seat = seats_[static_cast<size_t>(i)];
    if (seat.is_busy && world->script.ops[seat.op].kind == Kind::kSplice) rouse(i);
  }
}

// Everything is closed, and all who sleep are woken by that or by a signal.
bool Conductor::clean_up() {
  for (int i = kThreads; i < kActors; ++i) {
    if (!actor_at(i).exists) continue;
    kill(actor_at(i).process, SIGKILL);
    let_go(i);
  }
  if (is_lost_) return false;
  rouse_splicers();
  for (int fd = 3; fd < kNumbers; ++fd)
    if (myself.objects[static_cast<size_t>(fd)].what != Object::What::kNothing) close(fd);
  close_range(3, kNumbers - 1, 0);
  bool is_quiet = true;
  for (int i = 0; i < kThreads; ++i) {
    Seat& seat = seats_[static_cast<size_t>(i)];
    if (!seat.is_busy) continue;
    if (!rouse(i)) is_quiet = false;
    seat.is_busy = false;
  }
  return is_quiet;
}

}  // namespace ddpsock::sequences
