// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_HOLD_H_
#define DDPSOCK_STREAM_HOLD_H_

#include "base/lease.h"
#include "base/process.h"
#include "base/unfinished.h"
#include "stream/connection.h"
#include "stream/standstill.h"

namespace ddpsock::engine {

// Holds one direction of a stream for the length of a call, also when pthread_cancel unwinds it or
// a signal handler jumps out of it. Who holds one can reach all blocks of its direction: what a
// relative has put there may lie where this process has no address space to map it.
class Hold : private base::Unfinished {
 public:
  enum Direction : uint8_t { kReceive, kSend };

  Hold(Connection& c, base::Lease& lease) : Unfinished(abandon), c_(c), lease_(lease) { begin(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { end(); }

  // Only if nobody has it: false otherwise, at once.
  bool try_take() { return attempt() == base::Lease::Outcome::kAcquired; }

  // Never waits. kHeldByMe: this thread has it already, and keeps it. kInherited: see inherit().
  // kBusy: another call has it, or may soon (a program is being executed, standstill.h), or what
  // lies there cannot be mapped (see above).
  base::Lease::Outcome attempt() { return keep(lease_.try_acquire()); }
  // The same, and asks at once whether the one who has it lives.
  base::Lease::Outcome attempt_over_the_dead() { return keep(lease_.try_take_over()); }
  // REQUIRES: either has just said kInherited. 0: the one that died was asleep in the kernel, and
  // all is in order; EBADF: the number is another's, and the next call inherits; otherwise the
  // connection has failed, with this errno.
  int inherit(int fd);
  // In a child that a signal handler forked inside the call it is the parent's.
  void end() {
    if (is_held_ && copies_ == base::thread_copies()) give_back();
    is_held_ = false;
  }

  // 0, or the errno for the call: EBADF (the number is another's, after a wait), EAGAIN (another
  // call has the direction and this one must not wait: the kernel has been asked and refused too;
  // or a signal handler interrupted this thread's own call), EINTR, ECONNRESET (the last holder
  // died in the middle of a call), ENOBUFS (see above).
  int take(int fd, Direction direction, int flags) {
    const auto outcome = lease_.try_acquire();
    if (outcome == base::Lease::Outcome::kAcquired) [[likely]] {
      is_held_ = true;
      if (Standstill::is_wanted()) [[unlikely]]
        return stand(fd, direction, flags);
      return reach();
    }
    return wait(fd, direction, flags, outcome);
  }

 private:
  static void abandon(base::Unfinished& hold);
  bool is_inside_another() const;
  // A program is being executed, and this call can stop. One that has the other direction cannot:
  // who executes waits for that.
  bool must_stand() const {
    return Standstill::is_wanted() && Standstill::concerns_caller() && !has_other_direction();
  }
  bool has_other_direction() const;
  int stand(int fd, Direction direction, int flags);
  base::Lease::Outcome keep(base::Lease::Outcome outcome) {
    is_held_ =
        outcome == base::Lease::Outcome::kAcquired || outcome == base::Lease::Outcome::kInherited;
    if (outcome == base::Lease::Outcome::kAcquired && (must_stand() || reach() != 0)) {
      end();
      return base::Lease::Outcome::kBusy;
    }
    return outcome;
  }
  bool is_send() const { return &lease_ == &c_.tx.lease; }
  SleepMark& mark() const { return is_send() ? c_.tx.is_asleep : c_.rx.is_asleep; }
  int reach() {
    const uint32_t any = is_send() ? c_.tx.tail_block : c_.inbox.any_block();
    return any == Blocks::kNoBlock ? 0 : reach_blocks();
  }
  int reach_blocks();
  void give_back();
  int wait(int fd, Direction direction, int flags, base::Lease::Outcome first);

  Connection& c_;
  base::Lease& lease_;
  const uint32_t copies_ = base::thread_copies();
  bool is_held_ = false;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_HOLD_H_
