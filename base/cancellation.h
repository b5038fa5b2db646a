// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads that a program cancels (pthread_cancel) while they are in the library.
#ifndef DDPSOCK_BASE_CANCELLATION_H_
#define DDPSOCK_BASE_CANCELLATION_H_

#include <pthread.h>
#include <sys/eventfd.h>

#include <atomic>

#include "base/unfinished.h"

namespace ddpsock::base {

// libc's __libc_single_threaded. The preloaded library has one of its own, for programs of another
// libc, and finds libc's when it starts.
extern constinit const char* single_threaded;
inline bool is_single_threaded() {
  return *single_threaded != 0;
}

// Has a thread of this process ever asked to be cancelled at any instruction? Then bytes are taken
// from the kernel by calls that are no cancellation points, and do not wait.
inline constinit std::atomic<bool> is_any_asynchronous{false};

// The calling thread is not cancelled while one of these lives, but at its next cancellation point
// after. For system calls that do not wait, in code that must not be left half-way: most of what
// is below the wrappers is compiled without unwinding. Costs two locked instructions, or nothing in
// a process that has only this thread.
class Uncancelled {
 public:
  Uncancelled() {
    if (!is_single_threaded()) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~Uncancelled() {
    if (before_ != kUntouched) pthread_setcancelstate(before_, nullptr);
  }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  static constexpr int kUntouched = -1;
  int before_ = kUntouched;
};

// As Uncancelled, for calls that may wait: a signal handler may jump out of them.
class UncancelledCall : private Unfinished {
 public:
  UncancelledCall() : Unfinished(abandon) {
    begin();
    if (!is_single_threaded()) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~UncancelledCall() { restore(); }

 private:
  static void abandon(Unfinished& call) { static_cast<UncancelledCall&>(call).restore(); }
  void restore() {
    if (before_ != kUntouched) pthread_setcancelstate(before_, nullptr);
  }

  static constexpr int kUntouched = -1;
  int before_ = kUntouched;
};

// For a call that is one, and that may get along with system calls that are none.
inline void cancellation_point() {
  if (!is_single_threaded()) pthread_testcancel();
}

// An eventfd, non-blocking. A counter at its maximum refuses, but then its reader has a signal.
inline void raise_event(int fd) {
  const Uncancelled whole;
  eventfd_write(fd, 1);
}
inline void drain_event(int fd) {
  const Uncancelled whole;
  eventfd_t count;
  eventfd_read(fd, &count);
}

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_CANCELLATION_H_
