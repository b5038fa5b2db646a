// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether the program itself looks at a socket, by polls or asleep on it. The Domain's thread waits
// for each event once (EPOLLONESHOT). One that comes while the program is there is left to it: the
// connection is lent, and the thread only looks now and then whether the program still is (a tick).
// So a program that polls shares its socket with nobody, and one that stops polling to compute is
// taken over from within two ticks.
#ifndef DDPSOCK_MESSAGE_ATTENDANCE_H_
#define DDPSOCK_MESSAGE_ATTENDANCE_H_

#include <algorithm>
#include <atomic>

#include "message/endpoint.h"
#include "message/watch.h"

namespace ddpsock::message {

inline constexpr Duration kTick = Duration::from_ms(1);

// What a thread that sleeps on a socket itself waits for: poll(2)'s events, and until when.
struct Wakeup {
  int fd = -1;
  short events = 0;
  Time until = kNever;
};

// Free of the connection's lock, but for what is said to need it.
class Attendance {
 public:
  Attendance(Watch& watch, const Endpoint& endpoint) : watch_(watch), endpoint_(endpoint) {}

  // In shared memory, and somebody looks again before long: polls may pass by.
  void set_passable(bool is_passable) {
    is_passable_.store(is_passable, std::memory_order_release);
  }
  bool is_passable() const { return is_passable_.load(std::memory_order_relaxed); }
  // Whether a poll may pass by where it finds nothing, and take what it finds directly.
  bool may_pass() const {
    return is_passable_.load(std::memory_order_acquire) && !is_driven_by_events();
  }
  // Such a poll. False: now and then one must be seen by the thread (note_look()), and look at
  // everything if it finds nothing.
  bool count_pass() {
    const uint32_t passes = passes_.load(std::memory_order_relaxed) + 1;
    passes_.store(passes, std::memory_order_relaxed);
    return passes % kPasses != 0;
  }
  // Within such a poll: it need not even read the clock.
  bool is_passing() const {
    return is_passable() && passes_.load(std::memory_order_relaxed) % kPasses != 0;
  }
  void note_look(Time now) { last_look_ns_.store(now.ns, std::memory_order_relaxed); }

  // A thread sleeps on the socket itself.
  bool is_slept_on() const { return sleepers_.load() != 0; }
  void begin_sleep() { sleepers_.fetch_add(1); }
  // Whether the thread is to be recalled, after the last one.
  bool end_sleep() { return sleepers_.fetch_sub(1) == 1 && is_recall_wanted_.exchange(false); }

  // Whether somebody looks again before long, although nothing rings: the thread does, once a tick.
  // Not while another thread sleeps on the socket, or the program on the event fd.
  bool may_spin() const { return watch_.has_thread() && !is_slept_on() && !is_driven_by_events(); }
  // Once a tick, a look that is not spinning.
  bool take_whole_look() {
    return is_whole_look_due_.load(std::memory_order_relaxed) && is_whole_look_due_.exchange(false);
  }

  bool is_there(Time now) const {
    if (is_slept_on()) return true;
    if (is_driven_by_events()) return false;
    return now - Time{last_look_ns_.load(std::memory_order_relaxed)} < kTick;
  }
  // Whether the thread leaves the connection alone.
  bool is_left_to_callers() const { return is_left_.load(); }
  // With the lock. They have just been there.
  void leave_to_callers() {
    is_left_ = true;
    idle_ticks_ = 0;
  }
  // With the lock; by the thread, which has seen that they are. `due`: of the queue pair.
  void leave_to_callers(Time due, Time now) {
    const bool is_seen = is_seen_often();
    is_left_ = true;
    is_whole_look_due_.store(true, std::memory_order_relaxed);
    if (is_seen) return watch_.look_at(std::min(due, now + kTick));
    is_recall_wanted_.store(true);
    watch_.look_at(due);
    if (!is_slept_on() && is_recall_wanted_.exchange(false)) watch_.look_at(now);
  }
  // A tick that finds the program still there, as most do, keeps out of its way altogether. A `due`
  // that comes to be meanwhile is seen a tick later.
  bool stay_with_callers(Time due, Time now) {
    if (!is_left_ || due <= now || !is_there(now) || !is_seen_often()) return false;
    is_whole_look_due_.store(true, std::memory_order_relaxed);
    watch_.look_at(std::min(due, now + kTick));
    return true;
  }
  // With the lock.
  void take_over() {
    is_left_ = false;
    is_recall_wanted_.store(false);
  }

 private:
  // Polls that pass by, or find something directly, between two that the thread sees.
  static constexpr uint32_t kPasses = 32;
  // A sleeper whom nothing wakes for so many ticks will say itself when it goes.
  static constexpr uint32_t kMostIdleTicks = 8;

  // Whether the program was there since the last tick, or has not been away for long.
  bool is_seen_often() {
    const int64_t look = last_look_ns_.load(std::memory_order_relaxed);
    idle_ticks_ = is_left_ && look == seen_look_ns_ ? idle_ticks_ + 1 : 0;
    seen_look_ns_ = look;
    return idle_ticks_ < kMostIdleTicks;
  }
  bool is_driven_by_events() const { return endpoint_.queue().alarm().is_driven_by_events(); }

  Watch& watch_;
  const Endpoint& endpoint_;
  std::atomic<int64_t> last_look_ns_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> passes_{0};
  std::atomic<bool> is_passable_{false};
  std::atomic<bool> is_recall_wanted_{false};
  std::atomic<bool> is_whole_look_due_{false};
  // Written with the lock; a tick that changes nothing reads them without.
  std::atomic<bool> is_left_{false};
  std::atomic<uint32_t> idle_ticks_{0};
  int64_t seen_look_ns_ = 0;  // the thread's
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_ATTENDANCE_H_
