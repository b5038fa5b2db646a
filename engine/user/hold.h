// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_ENGINE_USER_HOLD_H_
#define DDPSOCK_ENGINE_USER_HOLD_H_

#include "base/lease.h"

namespace ddpsock::engine {

class UserStream;

// Holds one direction of a stream for the length of a call, also when pthread_cancel unwinds it.
class Hold {
 public:
  enum Direction : uint8_t { kReceive, kSend };

  Hold(UserStream& stream, base::Lease& lease) : stream_(stream), lease_(lease) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    if (is_held_) give_back();
  }

  // Only if nobody has it: false otherwise, at once.
  bool try_take() {
    is_held_ = lease_.try_acquire() == base::Lease::Outcome::kAcquired;
    return is_held_;
  }

  // Never waits. kHeldByMe: this thread has it already, and keeps it.
  base::Lease::Outcome attempt() {
    const auto outcome = lease_.try_acquire();
    is_held_ =
        outcome == base::Lease::Outcome::kAcquired || outcome == base::Lease::Outcome::kInherited;
    return outcome;
  }
  void end() {
    if (is_held_) give_back();
    is_held_ = false;
  }

  // 0, or the errno for the call: EAGAIN (another call has the direction and this one must not
  // wait: the kernel has been asked and refused too; or a signal handler interrupted this thread's
  // own call), EINTR, ECONNRESET (the last holder died in the middle of a call).
  int take(int fd, Direction direction, int flags) {
    const auto outcome = lease_.try_acquire();
    if (outcome == base::Lease::Outcome::kAcquired) [[likely]] {
      is_held_ = true;
      return 0;
    }
    return wait(fd, direction, flags, outcome);
  }

 private:
  void give_back();
  int wait(int fd, Direction direction, int flags, base::Lease::Outcome first);

  UserStream& stream_;
  base::Lease& lease_;
  bool is_held_ = false;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_HOLD_H_
