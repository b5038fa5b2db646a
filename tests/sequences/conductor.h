// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Runs a sequence: gives each call to its actor, waits until the actor has answered or sleeps in
// the kernel, then until all who slept and were woken by it sleep again or have answered, and only
// then goes on. So what is observed does not depend on time, as far as TCP's loopback does not.
#ifndef DDPSOCK_TESTS_SEQUENCES_CONDUCTOR_H_
#define DDPSOCK_TESTS_SEQUENCES_CONDUCTOR_H_

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "script.h"
#include "world.h"

namespace ddpsock::sequences {

class Conductor {
 public:
  Conductor();
  // Runs world->script and says what was seen in world->log. False if this process has to be given
  // up: somebody is asleep who could not be woken, or died.
  bool run();

 private:
  // What the conductor knows of an actor.
  struct Seat {
    pthread_t thread;
    int status_fd = -1;
    bool is_busy = false;
    size_t op = 0;
  };
  enum class State : uint8_t { kDone, kAsleep, kHangs, kDead };

  void start_thread(int actor);
  void run_op(size_t index);
  void order(size_t index);
  void conduct(const Op& op);
  void settle();
  int patience_ms() const;
  State wait_for(int actor);
  bool is_dead(int actor);
  void look_at_new_processes();
  void let_go(int actor);  // of a process that is gone
  void interrupt(int actor, int signal);
  void cancel(int actor);
  void end_process(int actor, HowToEnd how);
  void stop_process(int actor, bool is_stop);
  bool rouse(int thread);  // by a signal; false: it sleeps on
  void rouse_splicers();
  bool clean_up();

  std::array<Seat, kActors> seats_;
  bool is_lost_ = false, was_killed_in_a_call_ = false;
};

}  // namespace ddpsock::sequences

#endif  // DDPSOCK_TESTS_SEQUENCES_CONDUCTOR_H_
