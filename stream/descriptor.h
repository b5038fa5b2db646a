// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The number that a call came with. A system call that slept acted on the socket it began with, but
// meanwhile the program may have closed the number and given it to something else: the first use
// after a sleep makes sure, and from then on it is what outlives the number, or -1, if that is so.
// Nothing is then read from or written to the number's new owner; system calls fail with EBADF. So
// it is in a child that a signal handler forked meanwhile: the call that returns there is a copy,
// and what it holds its parent's.
#ifndef DDPSOCK_STREAM_DESCRIPTOR_H_
#define DDPSOCK_STREAM_DESCRIPTOR_H_

#include "base/process.h"
#include "stream/identity.h"

namespace ddpsock::engine {

class Descriptor {
 public:
  Descriptor(Connection& c, int fd) : c_(c), fd_(fd) {}

  // Also where it could have slept and did not.
  void note_sleep() {
    base::note_wake();
    may_be_taken_ = true;
  }

  // A sleep in slices: the look at the end of the one before may be of this very tick.
  void note_slice() {
    note_sleep();
    c_.stream.forget_comparison();
  }

  // The kernel restarts a call behind a signal handler by its number, and the program has closed
  // it.
  bool can_restart() const { return *this >= 0 && c_.outliving.load() != fd_; }

  // This is a child that a signal handler forked inside the call, which is its parent's.
  bool is_copy() const { return copies_ != base::thread_copies(); }

  operator int() const {
    if (may_be_taken_) [[unlikely]] {
      may_be_taken_ = false;
      fd_ = is_copy() ? -1 : going_on(c_, fd_);
    }
    return fd_;
  }

 private:
  Connection& c_;
  const uint32_t copies_ = base::thread_copies();
  mutable int fd_;
  mutable bool may_be_taken_ = false;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_DESCRIPTOR_H_
