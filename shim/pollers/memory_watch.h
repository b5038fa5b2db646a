// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An epoll set that watches streams which may lie in shared memory. epoll_wait() looks at those
// without a system call (memory_look.h), and while it does their bells may stay unread in the
// kernel; before it sleeps each is settled (memory_bells.h), so that the kernel's word is true
// again.
//
// What is known of the set, who may change that, who waits in it, and what the kernel is to be told
// yet. The sets themselves are in static memory, zero before the first (watched_sets.h). Any thread
// and signal handlers, but for what REQUIRES a hold; errno is kept but by ask().
#ifndef DDPSOCK_SHIM_POLLERS_MEMORY_WATCH_H_
#define DDPSOCK_SHIM_POLLERS_MEMORY_WATCH_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>

#include "base/unfinished.h"
#include "shim/pollers/change_lease.h"
#include "shim/pollers/deferral.h"
#include "shim/pollers/kernel_turn.h"
#include "shim/pollers/look_turn.h"
#include "shim/pollers/set_members.h"
#include "shim/pollers/set_waiters.h"

namespace ddpsock::shim {

// Sets that are watched, or were by a thread that waits in one still.
extern constinit std::atomic<unsigned> watched_sets;
inline bool is_any_set_watched() {
  return watched_sets.load(std::memory_order_acquire) != 0;
}

class WatchedSet {
 public:
  // Holds what is known of a set's members still. Who is refused, as in a signal handler that has
  // interrupted the holder, or after a second, asks the kernel alone, and the set becomes the
  // kernel's when the holder is done; until then nobody waits for that.
  class Hold : private base::Unfinished {
   public:
    explicit Hold(WatchedSet& set);
    ~Hold() { end(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    bool is_held() const { return is_held_; }
    // It is for the sake of this member. REQUIRES: is_held().
    void note_change_of(int fd) { set_.lease_.note_change_of(fd); }

   private:
    static void abandon(base::Unfinished& hold);
    void end();

    WatchedSet& set_;
    const bool was_mine_;  // and stays so: of the call that was interrupted
    bool is_held_ = false;
  };

  SetMembers& members() { return members_; }
  const SetPlace& place() const { return members_.place(); }
  SetWaiters& waiters() { return waiters_; }
  Deferral& deferral() { return deferral_; }
  KernelTurn& kernel_turn() { return kernel_turn_; }
  LookTurn& look_turn() { return look_turn_; }
  // Is somebody at work on the set? In a change, what becomes a member may have any data.
  bool is_changing() const { return lease_.is_held() || lease_.is_in_doubt(); }

  // The place is claimed: nothing is known of its members, and is_any_set_watched() from now on.
  // REQUIRES: a hold.
  void begin();
  // What the kernel need not hear of before it is asked the next time: programs change what they
  // wait for twice a message. True: it is done. Only for the one thread that waits here. REQUIRES:
  // a hold; `event` is readable, or the operation is EPOLL_CTL_DEL.
  bool defer(int operation, int fd, const epoll_event* event);
  // All of it becomes the kernel's. REQUIRES: a hold.
  void share_all();
  // Of a set that is closed. What is put off goes with it. Who is refused the hold may do so too.
  void forget_all();
  // Whoever waits in it finds nothing to look at, and must not find another set here: the last of
  // them frees the place.
  void free_if_left();

  // `fd` is about to be closed; with `is_still_watched` false it was, and is perhaps another's.
  void forget_fd(int fd, bool is_still_watched);
  // Tells the kernel what is put off: whoever asks a set that others hold finds that told.
  void tell_all();
  // As tell_all(), but of quiet.
  void tell_changes();
  // Deferral::is_quiet(), of a question that is about to be asked, and counts: after many the set
  // becomes quiet.
  bool ask_quietly();
  // What was seen as `w` at `version` is to be the kernel's, if it is still there.
  void hand_over_seen(WatchedStream& w, int fd, uint32_t version);
  // The kernel's events, without waiting.
  int ask(epoll_event* answer, int room) const;

  // In a forked child, before anything else of the set is touched.
  void renew_lease() { lease_.renew(); }
  // To the child it is somebody else's, and nobody waits in it. REQUIRES: renew_lease(), of all.
  void forget_in_child();

 private:
  void tell_all_now();

  SetMembers members_;
  alignas(64) ChangeLease lease_;
  SetWaiters waiters_;
  Deferral deferral_;
  KernelTurn kernel_turn_;
  LookTurn look_turn_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_MEMORY_WATCH_H_
