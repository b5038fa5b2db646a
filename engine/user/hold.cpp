// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/hold.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include "engine/user/kernel_socket.h"
#include "engine/user/user_stream.h"

namespace ddpsock::engine {
namespace {

using Outcome = base::Lease::Outcome;

// A holder that is not asleep in the kernel needs less than this for what it does.
constexpr Duration kHolderBusy = Duration::from_ms(100);

// For a call that must not wait. The other call may sleep in the kernel for long (then the kernel
// refuses us too) or be at work on what the kernel has (then it is done soon).
Outcome try_beside(base::Lease& lease, int fd, short events) {
  const Time give_up = base::now() + kHolderBusy;
  for (;;) {
    const Outcome outcome = lease.try_acquire();
    if (outcome != Outcome::kBusy) return outcome;
    if (!is_ready_now(fd, events) || base::now() > give_up) return Outcome::kBusy;
    sched_yield();
  }
}

}  // namespace

void Hold::give_back() {
  stream_.count_effort(lease_);
  lease_.release();
  if (stream_.r_.is_one_sided.load(std::memory_order_relaxed)) [[unlikely]]
    stream_.wake_waiting(&lease_ == &stream_.tx_.lease);
  stream_.finish_release();
}

int Hold::wait(int fd, Direction direction, int flags, Outcome outcome) {
  if (outcome == Outcome::kHeldByMe) return EAGAIN;
  const bool is_send = direction == kSend;
  if ((flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd)) {
    outcome = try_beside(lease_, fd, is_send ? POLLOUT : POLLIN);
  } else {
    outcome = lease_.acquire(deadline_of(fd, is_send ? SO_SNDTIMEO : SO_RCVTIMEO));
  }
  switch (outcome) {
    case Outcome::kAcquired:
      is_held_ = true;
      return 0;
    case Outcome::kInherited:
      is_held_ = true;
      if (!is_send && stream_.rx_.is_asleep) {
        stream_.rx_.is_asleep = false;
        return 0;
      }
      return stream_.fail_lost(fd, "a process died inside a call on this connection");
    case Outcome::kInterrupted:
      return EINTR;
    case Outcome::kBusy:
    case Outcome::kHeldByMe:
      return EAGAIN;
  }
  return EAGAIN;
}

}  // namespace ddpsock::engine
