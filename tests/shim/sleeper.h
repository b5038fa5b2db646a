// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_SHIM_SLEEPER_H_
#define DDPSOCK_TESTS_SHIM_SLEEPER_H_

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
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
    // Long enough that nothing spins any more.
    for (int calm = 0; calm < 5; sleep_ms(2)) calm = is_asleep(id_) ? calm + 1 : 0;
  }
  void join() { thread_.join(); }

 private:
  static bool is_asleep(pid_t thread) {
    char path[64], text[512] = {};
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    const Fd file(open(path, O_RDONLY | O_CLOEXEC));
    if (read(file.get(), text, sizeof text - 1) <= 0) return false;
    const char* after_name = strrchr(text, ')');
    return after_name != nullptr && after_name[2] == 'S';
  }

  std::atomic<pid_t> id_{0};
  std::jthread thread_;
};

}  // namespace ddpsock::shim_tests

#endif  // DDPSOCK_TESTS_SHIM_SLEEPER_H_
