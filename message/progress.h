// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A connection on the wire, from its start-up to its end: who moves its bytes, and when.
//
// Bytes move in the thread that calls: post pushes, poll looks. The Domain's thread does it for a
// connection that nobody is polling. Both hold mutex_ for it, by try_lock: who finds it taken
// leaves a note (is_work_pending_) that its owner sees before it goes.
#ifndef DDPSOCK_MESSAGE_PROGRESS_H_
#define DDPSOCK_MESSAGE_PROGRESS_H_

#include <array>
#include <atomic>
#include <span>

#include "base/inline_mutex.h"
#include "message/attendance.h"
#include "message/beside_stream.h"
#include "message/endpoint.h"
#include "message/startup.h"

namespace ddpsock::message {

// A plain number: an optional would be written and read in parts of two sizes, which costs more
// than a locked instruction.
inline constexpr int kAskAsUsual = -1;

// Any thread.
class Progress {
 public:
  // Both outlive it.
  Progress(Domain& domain, Startup& startup, Endpoint& endpoint)
      : startup_(startup), endpoint_(endpoint), watch_(domain) {}
  // See Connection. REQUIRES: an endpoint that is open, as all that follow but close().
  Status<> begin(int fd, Startup::Plan plan, bool is_held);
  Status<> begin_on_stream(int fd, engine::OneSidedWay& stream);
  // The program is ready: a held start-up goes on.
  void release();
  // So many requests have been posted: to be sent now, or (`is_more`) by the next poll or wait.
  // `is_answered`: what the program has not read of a stream makes way for the answer.
  void note_posted(unsigned count, bool is_more, bool is_answered);
  // SHUT_WR; or, with `is_abrupt`, both directions at once. ENOTCONN.
  Status<> shut(bool is_abrupt);
  // Not with the lock. The thread is out of it afterwards, and a begin() that was running is over:
  // then it is known whether the endpoint `is_open`. After close() nothing happens any more.
  uint64_t leave();
  void close(uint64_t id, bool is_open);
  // In a forked child.
  void abandon();

  // Holds the lock; whoever found it taken meanwhile is made up for.
  class Lock {
   public:
    explicit Lock(const Progress& progress) : progress_(const_cast<Progress&>(progress)) {
      progress_.mutex_.lock();
    }
    ~Lock() {
      progress_.mutex_.unlock();
      progress_.catch_up();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Progress& progress_;
  };
  Endpoint& endpoint() const { return endpoint_; }
  // nullptr: not on one.
  engine::OneSidedWay* stream() const { return beside_.stream(); }

  // For the Domain's thread: the socket is ready (`events`, EPOLL*), or the deadline has come (0).
  void serve(uint32_t events);
  const Watch& watch() const { return watch_; }

  // For its queue.
  uint32_t qp_number() const { return endpoint_.qp().number(); }
  Event event;
  // Posts that had DDP_MORE: the program has come to a poll.
  void send_held_back() {
    if (is_held_back_.load()) push();
  }
  // Looks at the socket, unless somebody is just doing it; moves bytes both ways.
  void look();
  // A poll by a few loads, so that a program that asks again and again finds a message as soon as
  // it is there; and that message, where it takes the direct way. kAskAsUsual, or how many.
  int poll_directly(std::span<ddp_completion> out);
  // Moves what there is to be moved, and takes nothing.
  void push();
  // Of a poll for which something is there already: whether it is time to look all the same, so
  // that who always finds its own completions is seen, and finds what comes, and the end.
  bool is_look_due() { return !attendance_.count_pass(); }
  // How many of `work`, from its beginning, have been sent by the direct way and are done.
  unsigned send_directly(std::span<const engine::SendWr> work);
  // Whether somebody has left a note meanwhile, which none of the two above has looked at: then the
  // caller is to make up for it, where it may take its time.
  bool has_notes() const { return is_work_pending_.load(); }
  void catch_up() {
    if (has_notes()) try_run(Look::kNone, base::now());
  }
  // While a thread sleeps on the socket itself, the Domain's need not wake.
  Wakeup begin_sleep();
  void end_sleep();

 private:
  friend class BesideStream;
  enum class Look : uint8_t { kNone, kWhole, kSpinning };
  // False: somebody is just doing it.
  bool try_run(Look how, Time now);

  // With mutex_.
  void run(Look how);
  void step(Time now, Look how);
  void step_starting(Time now);
  void step_running(Time now, Look how);
  void end(int status, const char* reason);
  void arm();

  Startup& startup_;
  Endpoint& endpoint_;
  base::InlineMutex mutex_;
  Watch watch_;
  Attendance attendance_{watch_, endpoint_};
  BesideStream beside_{*this};
  engine::Need need_{};
  std::atomic<int64_t> need_deadline_ns_{kNever.ns};  // of need_, for who does not hold mutex_
  Time last_step_{};
  std::array<engine::Completion, 16> direct_;  // here, as in an Inbox
  std::atomic<bool> is_work_pending_{false};
  std::atomic<bool> is_held_back_{false};  // DDP_MORE: there is work that nothing has been told of
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_PROGRESS_H_
