// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/hold.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "base/cancellation.h"
#include "stream/closing.h"
#include "stream/failure.h"
#include "stream/identity.h"
#include "stream/kernel_socket.h"
#include "stream/leaving.h"
#include "stream/one_sided.h"

namespace ddpsock::engine {
namespace {

using Outcome = base::Lease::Outcome;

// A holder that is not asleep in the kernel needs less than this for what it does.
constexpr Duration kHolderBusy = Duration::from_ms(100);

// And longer than this only one that has no CPU, that is stopped, or that has died.
constexpr Duration kHolderAtWork = Duration::from_ms(1);
// Calls that the kernel would refuse too ask after the holder only so often.
constexpr Duration kBetweenLooks = Duration::from_ms(20);

// A thread that waits for another's call can be cancelled so often.
constexpr Duration kBetweenCancellations = Duration::from_ms(20);

bool may_look(Time now) {
  static constinit std::atomic<int64_t> last{0};
  int64_t before = last.load(std::memory_order_relaxed);
  return now.ns - before > kBetweenLooks.ns && last.compare_exchange_strong(before, now.ns);
}

// For a call that must not wait. The other call may sleep in the kernel for long (then the kernel
// refuses us too, or a sender waits for room in memory) or be at work on what the kernel has (then
// it is done soon), or have died in it.
Outcome try_beside(const Family& family, base::Lease& lease, const SleepMark& is_asleep, int fd,
                   short events) {
  const Time start = base::now();
  for (bool has_asked = false;;) {
    const Outcome outcome = lease.try_acquire();
    if (outcome != Outcome::kBusy) return outcome;
    const bool is_ready = !(events == POLLOUT && is_asleep) && is_ready_now(fd, events);
    const Duration spent = base::now() - start;
    if (!has_asked && (is_ready ? spent > kHolderAtWork : may_look(start))) {
      has_asked = true;
      // It may have been given back meanwhile, and is ours then.
      if (const Outcome late = lease.try_take_over(); late != Outcome::kBusy) return late;
      // What it is in the middle of it goes on with, so nobody can take over.
      if (family.is_stopped(lease.holder())) return Outcome::kBusy;
    }
    if (!is_ready || spent > kHolderBusy) return Outcome::kBusy;
    sched_yield();
  }
}

}  // namespace

// Does a call that this one has interrupted want the same direction, and have it perhaps?
bool Hold::is_inside_another() const {
  for (const Unfinished* at = outer(); at != nullptr; at = at->outer())
    if (is_alike(*at) && &static_cast<const Hold*>(at)->lease_ == &lease_) return true;
  return false;
}

bool Hold::has_other_direction() const {
  for (const Unfinished* at = outer(); at != nullptr; at = at->outer())
    if (is_alike(*at) && static_cast<const Hold*>(at)->is_held_) return true;
  return false;
}

// With empty hands, so that nobody waits for this call.
int Hold::stand(int fd, Direction direction, int flags) {
  if (must_stand()) {
    end();
    Standstill::wait();
    if (copies_ != base::thread_copies()) return EINTR;
    if (still(c_, fd) != fd) return EBADF;
    const auto outcome = lease_.try_acquire();
    if (outcome != Outcome::kAcquired) return wait(fd, direction, flags, outcome);
    is_held_ = true;
  }
  return reach();
}

// Where it slept the record is as it should be; elsewhere the next call finds that it may not be.
// Who is left between taking the lease and noting that has it all the same.
void Hold::abandon(base::Unfinished& unfinished) {
  auto& hold = static_cast<Hold&>(unfinished);
  if (!hold.lease_.is_mine() || (!hold.is_held_ && hold.is_inside_another())) return;
  if (hold.mark().take_over()) {
    hold.give_back();
  } else {
    hold.lease_.abandon();
  }
}

// However the call ends: one that pthread_cancel unwinds has not come to the end of its sleep.
void Hold::give_back() {
  if (SleepMark& is_asleep = mark(); is_asleep) [[unlikely]]
    is_asleep = false;
  c_.count_effort(lease_);
  lease_.release();
  if (c_.r.is_one_sided.load(std::memory_order_relaxed)) [[unlikely]]
    wake_waiting(c_, is_send());
  finish_release(c_);
}

// Gives the lease back where it fails: another process can go on.
int Hold::reach_blocks() {
  const bool are_mapped = is_send() ? c_.arena.blocks.data(c_.tx.tail_block) != nullptr
                                    : c_.inbox.is_mapped(c_.arena.blocks);
  if (are_mapped) return 0;
  end();
  return ENOBUFS;
}

// Up to the verdict, and where it is plain TCP, a call only looks.
static bool has_moved_nothing(const Connection& c) {
  return c.r.peer == Peer::kUnknown || c.r.peer == Peer::kPlain;
}

// Awake before it is asked whose the number is: who closes it sees that and waits. By the cookie
// alone, because the last holder inherits in close(), when the program has no number any more.
int Hold::inherit(int fd) {
  const bool was_asleep = mark().take_over();
  if (!is_my_cookie(c_, fd)) {
    if (was_asleep) mark() = true;
    lease_.abandon();
    is_held_ = false;
    return EBADF;
  }
  if (was_asleep || has_moved_nothing(c_)) {
    const int e = is_send() ? 0 : go_on_beyond_memory(c_);
    return e != 0 ? e : reach();
  }
  return fail_lost(c_, fd, "a process died inside a call on this connection");
}

int Hold::wait(int fd, Direction direction, int flags, Outcome outcome) {
  if (outcome == Outcome::kHeldByMe) return EAGAIN;
  const bool is_sending = direction == kSend;
  if ((flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd)) {
    outcome = try_beside(c_.arena.family, lease_, mark(), fd, is_sending ? POLLOUT : POLLIN);
  } else {
    const Time deadline = deadline_of(fd, is_sending ? SO_SNDTIMEO : SO_RCVTIMEO);
    const auto goes_on = [&] {
      if (outcome == Outcome::kBusy) return base::now() < deadline;
      return outcome == Outcome::kInterrupted && deadline == kNever && do_handlers_restart();
    };
    do {
      base::cancellation_point();  // the wait is none
      outcome = lease_.acquire(std::min(deadline, base::now() + kBetweenCancellations));
    } while (goes_on());
  }
  switch (outcome) {
    case Outcome::kAcquired:
      is_held_ = true;
      if (must_stand()) return stand(fd, direction, flags);
      return still(c_, fd) == fd ? reach() : EBADF;
    case Outcome::kInherited:
      is_held_ = true;
      return inherit(fd);
    case Outcome::kInterrupted:
      return EINTR;
    case Outcome::kBusy:
    case Outcome::kHeldByMe:
      return EAGAIN;
  }
  return EAGAIN;
}

}  // namespace ddpsock::engine
