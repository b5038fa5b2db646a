// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which epoll sets watch streams that may lie in shared memory. epoll_wait() looks at those without
// a system call (memory_look.h), and while it does their bells may stay unread in the kernel;
// before it sleeps each is settled, so that the kernel's word is true again. Bounded: a stream that
// does not fit is rung for each sleep of its reader and costs what it costs on TCP.
#ifndef DDPSOCK_SHIM_MEMORY_WATCH_H_
#define DDPSOCK_SHIM_MEMORY_WATCH_H_

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "engine/stream.h"
#include "shim/other_members.h"

namespace ddpsock::shim {

class WatchedSet {
 public:
  static constexpr unsigned kMost = 128;

  // The set `set` if it watches anything that is of interest here; nullptr otherwise.
  static WatchedSet* find(int set);
  // `set` watches `fd` with `event` from now on, in place of what it did before; forgotten if that
  // cannot be served here (one-shot, exclusive, no room).
  static void watch(int set, int fd, const epoll_event& event);
  // As that, of what another thread may have deleted since the kernel was told: it is the kernel's.
  static void leave_to_kernel(int set, int fd, const epoll_event& event);
  // Not any more. A bell that lies unread stays so until the next settle(): all that can come of it
  // is that a poller of another kind finds the socket readable for nothing, once.
  static void unwatch(int set, int fd);
  // The kernel has done as epoll_ctl asked for something that is not a stream.
  static void note_other(int set, int operation, int fd, const epoll_event* event);
  // `fd` is about to be closed; false: it was, and is perhaps another's.
  static void forget_fd(int fd, bool is_still_watched);
  // `set` was made just now, by this process: nobody else has it yet. Only such sets are looked
  // after here.
  static void note_created(int set);
  // Somebody else will wait in what `set` may be, or change it, who relies on the kernel: another
  // set or poll() that holds it, a duplicate, a process that it is passed to. From now on it is the
  // kernel's.
  static void share(int set) {
    if (is_own(set)) share_own(set);
  }

  // A call has just returned `set` as another descriptor than it was. What was put off of the one
  // that had the number before went with it.
  static void forget(int set) {
    if (is_own(set)) forget_own(set);
  }

  // An epoll_ctl that the kernel need not hear of before it is asked the next time: programs change
  // what they wait for twice a message. True: it is done. Only for the one thread that waits here.
  static bool defer(int set, int operation, int fd, const epoll_event* event);
  // Tells the kernel what was deferred. All sets': somebody is about to ask it.
  static void tell_kernel() {
    if (deferred.load(std::memory_order_acquire) != 0) tell_kernel_all();
  }
  // This set's: whoever asks one that others hold finds that told already (share()).
  void tell_all();
  // A call of the program's epoll_ctl, from before the kernel hears of it until that is known here.
  // Of calls that overlap nobody knows which the kernel heard last.
  class CtlCall {
   public:
    CtlCall(WatchedSet* set, int operation, int fd);  // nullptr: of none
    ~CtlCall();
    CtlCall(const CtlCall&) = delete;
    CtlCall& operator=(const CtlCall&) = delete;
    // By another thread since this began, which may have been told of the member by the kernel.
    bool may_be_deleted() const;

   private:
    WatchedSet* set_;
    int operation_;
    int fd_;
    uint32_t before_, deletions_;
  };
  // A thread waits in the set, from its first look to its return.
  class Inside {
   public:
    explicit Inside(WatchedSet& set);
    ~Inside() {
      if (set_.inside_.fetch_sub(1) == 1 && set_.set_.load() == kLeft) set_.free_if_left();
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    WatchedSet& set_;
  };

  // About to sleep: the kernel shall tell the truth about all of them. False: one has bytes.
  bool settle();
  // Takes from an answer of the kernel's what it reports for a bell that was left there. How many
  // events are left.
  int without_bells(epoll_event* answer, int count);

  // With room for so few events the kernel's own order is the only one that is known: it goes by
  // when each became ready, and here that is known of none that is found beside another.
  bool is_for_kernel(int room) const;
  // Could a member have become ready that only the kernel knows of? `wires`: streams some of whose
  // bytes come as FPDUs.
  bool may_others_be_ready(std::span<const int> wires) { return others_.may_be_ready(wires); }
  bool has_others() const { return others_.is_any(); }

  // After many questions between two sleeps, until tell_all(): the kernel reports each bell of a
  // stream in memory once at most, and the set itself can be asked about all else.
  bool is_quiet() const { return is_quiet_.load(std::memory_order_relaxed); }
  // The same, of a question that is about to be asked.
  bool is_quiet_by_now();
  // As tell_all(), but for that.
  void tell_changes();
  // The kernel's events, without waiting.
  int ask(epoll_event* answer, int room) const;
  // Is it time to ask the kernel in any case, although there are bytes in memory?
  bool is_kernel_due();
  // It was asked, from is_kernel_due() until now.
  void note_kernel_asked();

 private:
  struct Watch {
    std::atomic<int> fd;           // plus 1; 0: free; kTaken: of one that is being added
    std::atomic<uint32_t> events;  // as the program wants them
    std::atomic<bool> is_wanted;
    std::atomic<bool> is_in_kernel;  // and with which events and data the kernel knows it
    std::atomic<uint32_t> kernel_events;
    std::atomic<uint64_t> kernel_data;
    std::atomic<uint64_t> data;
    std::atomic<uint64_t> reported;  // up to where, for edge-triggered ones
    std::atomic<uint64_t> seen;      // how far at `seen_at`
    std::atomic<int64_t> seen_at;
    std::atomic<bool> has_order;  // its writer notes times
    std::atomic<bool> has_lazy_bell;
    std::atomic<bool> is_hushed;  // the kernel is not to say that it is readable

    // The stream that is known by `number`; again until it is in memory.
    void want_order(int number);
    // False: another thread was faster.
    bool change_fd(int from, int to) { return fd.compare_exchange_strong(from, to); }
  };
  friend class MemoryLook;

  static constexpr int kTaken = -1;
  static constexpr unsigned kMostNumbers = 65536;
  static std::array<std::atomic<uint64_t>, kMostNumbers / 64> own_, claiming_;
  static std::atomic<unsigned> deferred;     // sets that have something to tell
  static std::atomic<uint32_t> generation_;  // of the process that the sets are known in
  static void tell_kernel_all();
  static bool is_own(int set) {
    return static_cast<unsigned>(set) < kMostNumbers &&
           (own_[static_cast<unsigned>(set) / 64].load(std::memory_order_relaxed) >>
                (static_cast<unsigned>(set) % 64) &
            1) != 0;
  }
  static void set_own(int set, bool is_own);
  static void share_own(int set);
  static void forget_own(int set);
  static void forget_set(int set);
  static void before_fork();
  static void in_child();
  static void notice_fork();
  void tell(Watch& w, int fd);
  void tell_but_hush(Watch& w, int fd);
  static uint32_t events_for_kernel(const Watch& w);
  int order(Watch& w, int fd, int operation);
  void order_again(Watch& w, int fd, bool may_add);
  bool is_alone_inside() const { return inside_.load() <= 1 && !has_forked_.load(); }
  void hush(Watch& w, int fd);
  void end_quiet();

  static bool is_for_bell(Watch& w, int fd, engine::Stream& stream);
  uint32_t without_bell(const epoll_event& event);
  template <typename F>
  void each(F visit);
  static WatchedSet* claim(int set);
  static WatchedSet* take_set(int set);
  void free_if_left();
  Watch* find_fd(int fd);
  Watch* take_place();
  bool has_other_with(uint64_t data, int fd);
  void drop(Watch& w, int fd);
  void give_up(Watch& w, int fd);
  void hand_over_with(uint64_t data);
  void hand_over(Watch& w, int fd);

  static constexpr int kLeft = -1;
  std::atomic<int> set_;          // plus 1; 0: free; kLeft: forgotten with a thread inside
  std::atomic<uint32_t> waiter_;  // the thread that waited here last
  std::atomic<int> inside_;
  // Ends of orders that the kernel was given, by what the members' numbers leave.
  static constexpr size_t kOrders = 16;
  std::array<std::atomic<uint32_t>, kOrders> orders_;
  std::atomic<uint32_t>& orders_of(int fd) { return orders_[static_cast<size_t>(fd) % kOrders]; }
  // Beginnings of those of the program's that delete.
  std::array<std::atomic<uint32_t>, kOrders> deletions_;
  std::atomic<uint32_t>& deletions_of(int fd) {
    return deletions_[static_cast<size_t>(fd) % kOrders];
  }
  std::atomic<bool> is_deferring_;
  std::atomic<bool> is_kernel_behind_;  // what was put off is the program's wish
  std::atomic<bool> is_quiet_;
  std::atomic<uint32_t> questions_;    // since the kernel was told last
  std::atomic<uint32_t> quiet_after_;  // so many, and kQuietAfter more
  std::atomic<bool> has_forked_;       // a child has it too, and must find what we have asked for
  std::atomic<unsigned> end_, next_;
  std::atomic<int64_t> asked_at_, ask_again_at_;  // the kernel, nanoseconds
  std::atomic<int64_t> others_busy_until_;        // one of them was reported lately
  std::array<Watch, kMost> watches_;
  OtherMembers others_;
};

extern constinit std::atomic<unsigned> watched_sets;
inline bool is_any_set_watched() {
  return watched_sets.load(std::memory_order_acquire) != 0;
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_MEMORY_WATCH_H_
