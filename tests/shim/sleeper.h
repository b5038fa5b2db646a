// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_SHIM_SLEEPER_H_
#define DDPSOCK_TESTS_SHIM_SLEEPER_H_

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "tcp.h"

namespace ddpsock::shim_tests {

// A thread in a call that sleeps, seen in /proc when the constructor returns.
class Sleeper {
 public:
  explicit Sleeper(std::function<void()> call)
      : thread_([this, call = std::move(call)] {
          id_ = gettid();
          call();
        }) {
    while (id_ == 0) sched_yield();
    await_calm();
  }
  // Long enough that nothing spins any more.
  void await_calm() const {
    for (int calm = 0; calm < 5; sleep_ms(2)) calm = is_asleep(id_) ? calm + 1 : 0;
  }
  void interrupt(int signal_number) { pthread_kill(thread_.native_handle(), signal_number); }
  void join() { thread_.join(); }

 private:
  std::atomic<pid_t> id_{0};
  std::jthread thread_;
};

}  // namespace ddpsock::shim_tests

#endif  // DDPSOCK_TESTS_SHIM_SLEEPER_H_
