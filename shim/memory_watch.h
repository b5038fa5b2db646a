// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which epoll sets watch streams that may lie in shared memory. epoll_wait() looks at those without
// a system call, and while it does their bells may stay unread in the kernel; before it sleeps each
// is settled, so that the kernel's word is true again. Bounded: a stream that does not fit is rung
// for each sleep of its reader and costs what it costs on TCP.
#ifndef DDPSOCK_SHIM_MEMORY_WATCH_H_
#define DDPSOCK_SHIM_MEMORY_WATCH_H_

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "engine/stream.h"

namespace ddpsock::shim {

class WatchedSet {
 public:
  static constexpr unsigned kMost = 128;

  // The set `set` if it watches anything that is of interest here; nullptr otherwise.
  static WatchedSet* find(int set);
  // `set` watches `fd` with `event` from now on, in place of what it did before; forgotten if that
  // cannot be served here (one-shot, exclusive, no room).
  static void watch(int set, int fd, const epoll_event& event);
  // Not any more. A bell that lies unread stays so until the next settle(): all that can come of it
  // is that a poller of another kind finds the socket readable for nothing, once.
  static void unwatch(int set, int fd);
  static void forget_fd(int fd);
  static void forget_set(int set);

  // An epoll_ctl that the kernel need not hear of before it is asked the next time: programs change
  // what they wait for twice a message. True: it is done. Only for the one thread that waits here.
  static bool defer(int set, int operation, int fd, const epoll_event* event);
  // Tells the kernel what was deferred. All sets': somebody is about to ask it.
  static void tell_kernel() {
    if (deferred.load(std::memory_order_acquire) != 0) tell_kernel_all();
  }
  // A thread waits in the set, from its first look to its return.
  class Inside {
   public:
    explicit Inside(WatchedSet& set);
    ~Inside() { set_.inside_.fetch_sub(1, std::memory_order_release); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    WatchedSet& set_;
  };

  // Streams that have bytes, as events; with them their bells may stay. If there are none, waits a
  // little for them without sleeping, where `may_spin` and where that is worth it.
  int collect(epoll_event* events, int room, bool may_spin);
  // About to sleep: the kernel shall tell the truth about all of them. False: one has bytes.
  bool settle();
  // Adds the kernel's answer (`count` events from `answer`) to `kept` events before it: without
  // what it reports for a bell that was left there, and in one event what is of one descriptor. How
  // many there are now.
  int merge(epoll_event* events, int kept, const epoll_event* answer, int count);

  // Is it time to ask the kernel too, although there are bytes in memory?
  bool is_kernel_due();
  // It was asked, from is_kernel_due() until now.
  void note_kernel_asked();

 private:
  struct Watch {
    std::atomic<int> fd;           // plus 1; 0: free
    std::atomic<uint32_t> events;  // as the program wants them
    std::atomic<bool> is_wanted;
    std::atomic<bool> is_in_kernel;  // and with which events and data the kernel knows it
    std::atomic<uint32_t> kernel_events;
    std::atomic<uint64_t> kernel_data;
    std::atomic<uint64_t> data;
    std::atomic<uint64_t> reported;  // up to where, for edge-triggered ones
    std::atomic<uint64_t> seen;      // how far at `seen_at`
    std::atomic<int64_t> seen_at;
    std::atomic<bool> has_lazy_bell;
  };
  class Look;

  static std::atomic<unsigned> deferred;  // sets that have something to tell
  static void tell_kernel_all();
  void tell(Watch& w, int fd);
  void tell_all();

  static bool is_for_bell(Watch& w, int fd, engine::Stream& stream);
  uint32_t without_bells(const epoll_event& event);
  template <typename F>
  void each(F visit);
  static WatchedSet* claim(int set);
  Watch* find_fd(int fd);
  bool has_other_with(uint64_t data, int fd);
  static void forget(int set, int fd);

  std::atomic<int> set_;          // plus 1; 0: free
  std::atomic<uint32_t> waiter_;  // the thread that waited here last
  std::atomic<int> inside_;
  std::atomic<bool> is_deferring_;
  std::atomic<unsigned> end_, next_;
  std::atomic<int64_t> asked_at_, ask_again_at_;  // the kernel, nanoseconds
  std::array<Watch, kMost> watches_;
};

extern constinit std::atomic<unsigned> watched_sets;
inline bool is_any_set_watched() {
  return watched_sets.load(std::memory_order_acquire) != 0;
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_MEMORY_WATCH_H_
