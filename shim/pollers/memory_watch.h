// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which epoll sets watch streams that may lie in shared memory. epoll_wait() looks at those without
// a system call (memory_look.h), and while it does their bells may stay unread in the kernel;
// before it sleeps each is settled, so that the kernel's word is true again. Bounded: a stream that
// does not fit is rung for each sleep of its reader and costs what it costs on TCP.
#ifndef DDPSOCK_SHIM_POLLERS_MEMORY_WATCH_H_
#define DDPSOCK_SHIM_POLLERS_MEMORY_WATCH_H_

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "base/lease.h"
#include "base/process.h"
#include "base/unfinished.h"
#include "shim/fd_table.h"
#include "shim/pollers/other_members.h"
#include "stream/stream.h"

namespace ddpsock::shim {

class WatchedSet {
 public:
  static constexpr unsigned kMost = 128;

  // The set `set` if it watches anything that is of interest here; nullptr otherwise.
  static WatchedSet* find(int set);
  // Could `fd` in `set` be looked at here, now or later?
  static bool may_serve(int set, int fd);
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

  // Tells the kernel what was deferred. All sets': somebody is about to ask it.
  static void tell_kernel() {
    if (deferred.load(std::memory_order_acquire) != 0) tell_kernel_all();
  }
  // This set's: whoever asks one that others hold finds that told already (share()).
  void tell_all();
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

   private:
    static void abandon(base::Unfinished& hold);
    void end();

    WatchedSet& set_;
    const bool was_mine_;  // and stays so: of the call that was interrupted
    bool is_held_ = false;
  };
  // The program's epoll_ctl(), from before the kernel hears of it until that is known here: calls
  // of several threads come one after the other, as they do in the kernel.
  class Change {
   public:
    // With a stream that may come to lie in memory the set begins to be watched.
    Change(int set, int operation, int fd, const epoll_event* event);
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

    // What the kernel need not hear of before it is asked the next time: programs change what they
    // wait for twice a message. True: it is done. Only for the one thread that waits here.
    bool defer() { return hold_ && defer_held(); }
    // The kernel has done it. The set is free for others then.
    void note();
    // Of one that began before anybody could watch the set.
    static void note_late(int set, int operation, int fd, const epoll_event* event);

   private:
    struct Late {};
    Change(Late, int set, int operation, int fd, const epoll_event* event)
        : number_(set), operation_(operation), fd_(fd), event_(event), set_(nullptr) {}
    bool defer_held();

    const int number_, operation_, fd_;
    const epoll_event* const event_;
    WatchedSet* set_;
    std::optional<Hold> hold_;
  };
  // A thread waits in set `set`, from its first look to its return.
  class Inside : private base::Unfinished {
   public:
    Inside(WatchedSet& watched, int set);
    ~Inside() { end(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    // False: it has become the kernel's meanwhile, and this place perhaps another set's.
    bool is_of_set() const { return is_of_set_; }

   private:
    void end();

    WatchedSet& set_;
    const uint32_t generation_;
    bool is_of_set_ = false;
  };

  // About to sleep: the kernel shall tell the truth about all of them. False: one has bytes.
  bool settle();
  // This thread is about to wait in another set than `here`, which may have the same streams.
  static void settle_elsewhere(const WatchedSet* here) {
    if (lying_in_ != nullptr && lying_in_ != here) settle_last();
  }
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
  // Is `fd` looked at here?
  bool has(int fd) { return find_fd(fd) != nullptr; }

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
  struct alignas(64) Watch {
    std::atomic<int> fd;  // plus 1; 0: free
    // Raised whenever it is freed or deleted: who looks without a Hold finds out that it is
    // another's.
    std::atomic<uint32_t> version;
    std::atomic<uint32_t> events;         // as the program wants them
    std::atomic<uint32_t> kernel_events;  // as the kernel knows them
    std::atomic<uint64_t> data, kernel_data;
    std::atomic<uint64_t> reported;  // mark() of up to where, for edge-triggered ones
    std::atomic<uint64_t> seen;      // how far at `seen_at`
    std::atomic<int64_t> seen_at;
    std::atomic<bool> is_wanted;
    std::atomic<bool> is_in_kernel;
    std::atomic<bool> has_order;  // its writer notes times
    std::atomic<bool> has_lazy_bell;
    std::atomic<bool> is_hushed;  // the kernel is not to say that it is readable

    bool is(int number, uint32_t of_version) const {
      return fd.load(std::memory_order_acquire) == number + 1 && version.load() == of_version;
    }
    // A position of the stream that was here at `of_version`: no other's is equal.
    static uint64_t mark(uint32_t of_version, uint64_t position) {
      return position + (uint64_t{of_version} << 48);
    }
    // The stream that is known by `number`; again until it is in memory.
    void want_order(int number);
    void free();
  };
  static_assert(sizeof(Watch) == 64);
  friend class MemoryLook;
  // The set of whose streams this thread has let bells lie; perhaps another's by now.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit WatchedSet* lying_in_;
  static void settle_last();

  static constexpr unsigned kMostNumbers = 65536;
  static std::array<std::atomic<uint64_t>, kMostNumbers / 64> own_;
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
  static void notice_fork() {
    if (generation_.load(std::memory_order_relaxed) != base::process_generation()) [[unlikely]]
      begin_in_child();
  }
  static void begin_in_child();
  static void renew_leases();
  // Is somebody at work on the set? In a change, what becomes a member may have any data.
  bool is_changing() const { return lease_.is_held() || must_share_.load(); }
  void tell_all_now();
  void tell(Watch& w, int fd);
  void tell_but_hush(Watch& w, int fd);
  static uint32_t events_for_kernel(const Watch& w);
  bool is_alone_inside() const { return inside_.load() <= 1 && !has_forked_.load(); }
  void hush_seen(Watch& w, int fd, uint32_t version);
  void end_quiet();

  static bool is_for_bell(Watch& w, int fd, engine::Stream& stream);
  uint32_t without_bell(const epoll_event& event);
  template <typename F>
  void each(F visit);
  // Runs `f(Stream&)` if `fd` is a stream in DDPMODE.
  template <typename F>
  static void with_stream(int fd, F f);
  void free_what_left();
  static WatchedSet* claim(int set, std::optional<Hold>& hold);
  bool is_claimed_elsewhere(int set) const;
  void free_if_left();
  void forget_all();
  void share_all();
  Watch* find_fd(int fd);
  Watch* take_place();
  bool has_other_with(uint64_t data, int fd);
  // All these with a Hold.
  void watch(int fd, const epoll_event& event);
  void unwatch(int fd);
  void unwatch_late(int fd);
  void leave_to_kernel(int fd, const epoll_event& event);
  bool defer(int operation, int fd, const epoll_event* event);
  void give_up(Watch& w, int fd);
  void hand_over_with(uint64_t data);
  void hand_over(Watch& w, int fd);
  // Without one, of what was seen at `version`.
  void hand_over_seen(Watch& w, int fd, uint32_t version);
  void tell_seen(Watch& w, int fd, uint32_t version);

  // Forgotten with a thread inside; claimed for a set, and not known yet.
  static constexpr int kLeft = -1;
  static constexpr int claimed(int set) { return -2 - set; }
  std::atomic<int> set_;  // plus 1; 0: free; or one of these. All look for theirs among these
  alignas(64) base::Lease lease_;  // of Hold
  std::atomic<int> changing_;      // the descriptor that it was last taken for, plus 1
  // What is known may be wrong: somebody had to change it without a Hold.
  std::atomic<bool> must_share_;
  std::atomic<uint32_t> waiter_;  // the thread that waited here last
  std::atomic<int> inside_;
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

template <typename F>
void WatchedSet::each(F visit) {
  const unsigned end = end_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < end; ++i)
    if (const int fd = watches_[i].fd.load(std::memory_order_acquire) - 1; fd >= 0)
      visit(watches_[i], fd);
}

template <typename F>
void WatchedSet::with_stream(int fd, F f) {
  if (socket_at(fd) == nullptr) return;
  const SocketUse use(fd);
  if (!use || !has_live_stream(use.phase())) return;
  engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  if (stream.is_behind(fd)) f(stream);
}

extern constinit std::atomic<unsigned> watched_sets;
inline bool is_any_set_watched() {
  return watched_sets.load(std::memory_order_acquire) != 0;
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_MEMORY_WATCH_H_
