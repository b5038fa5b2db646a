// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who changes what is known of an epoll set: one thread at a time, and nobody waits for ever for
// another. Who is refused changes the kernel's set alone, and then what is known is in doubt until
// somebody who holds it has seen to that. Zero memory is a free one without doubt. Any thread,
// signal handlers too. (WatchedSet::Hold gives back what a jump leaves behind.)
#ifndef DDPSOCK_SHIM_POLLERS_CHANGE_LEASE_H_
#define DDPSOCK_SHIM_POLLERS_CHANGE_LEASE_H_

#include <atomic>

#include "base/lease.h"

namespace ddpsock::shim {

class ChangeLease {
 public:
  // Waits a second at most, and not where there is doubt already. False: another thread has it, or
  // the call that this handler has interrupted; in doubt from now on. Keeps errno.
  bool acquire() {
    const base::Lease::Outcome got = lease_.try_acquire();
    return got == base::Lease::Outcome::kAcquired || acquire_after(got);
  }
  // True: there is doubt since, and the caller has it once more. REQUIRES: is_mine().
  bool release() {
    lease_.release();
    return is_in_doubt() && lease_.try_acquire() == base::Lease::Outcome::kAcquired;
  }
  bool is_mine() const { return lease_.is_mine(); }
  bool is_held() const { return lease_.is_held(); }

  // What is known may be wrong: somebody had to change it without this.
  bool is_in_doubt() const { return is_in_doubt_.load(); }
  void doubt() { is_in_doubt_.store(true); }
  // REQUIRES: is_mine(), and nothing that was doubted is known any more.
  void end_doubt() { is_in_doubt_.store(false); }

  // It was acquired for the sake of this descriptor. REQUIRES: is_mine().
  void note_change_of(int fd) { changing_.store(fd + 1); }
  bool is_held_for(int fd) const { return changing_.load() == fd + 1 && lease_.is_held(); }

  // In a forked child: who has it is a thread of the parent's, or is inside the call that forked.
  void renew();

 private:
  bool acquire_after(base::Lease::Outcome got);

  base::Lease lease_;
  std::atomic<int> changing_;  // the descriptor that it was last taken for, plus 1
  std::atomic<bool> is_in_doubt_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_CHANGE_LEASE_H_
