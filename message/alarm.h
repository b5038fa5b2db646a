// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Tells those who wait for a queue that something has come: threads that sleep in a call, and a
// program that has asked for the event fd. What nobody waits for is told nobody.
#ifndef DDPSOCK_MESSAGE_ALARM_H_
#define DDPSOCK_MESSAGE_ALARM_H_

#include <atomic>
#include <cstdint>

#include "base/cancellation.h"
#include "engine/engine.h"

namespace ddpsock::message {

// Any thread, once open.
class Alarm {
 public:
  // Both borrowed; `cq` signals `event_fd`.
  void open(int event_fd, engine::Cq& cq) {
    fd_ = event_fd;
    cq_ = &cq;
  }
  // Those who sleep must look again.
  void ring() {
    if (sleepers_.load() != 0 || is_event_wanted_.load()) base::raise_event(fd_);
  }
  // One signal may have been for several completions, and another thread have seen it.
  void pass_on() {
    if (sleepers_.load() != 0) base::raise_event(fd_);
  }
  // Whether calls are expected only after the event fd has said so.
  bool is_driven_by_events() const { return is_event_wanted_.load(std::memory_order_relaxed); }
  // From now on they are. The event fd.
  int want_events() {
    is_event_wanted_.store(true);
    cq_->arm(engine::Cq::Arm::kAny);
    // What came before it was armed.
    base::raise_event(fd_);
    return fd_;
  }
  // Signals what comes from now on: look once more.
  void rearm() {
    base::drain_event(fd_);
    cq_->arm(engine::Cq::Arm::kAny);
  }

  // Prepares a sleep: afterwards, and after one more look for what is waited for, poll fd(). Who
  // drives connections itself and finds completions need not be told of them: nothing is armed any
  // more once the last sleeper is awake.
  class Sleeper {
   public:
    explicit Sleeper(Alarm& alarm) : alarm_(alarm) {
      alarm_.sleepers_.fetch_add(1);
      alarm_.cq_->arm(engine::Cq::Arm::kAny);
    }
    ~Sleeper() {
      const bool is_last = alarm_.sleepers_.fetch_sub(1) == 1;
      // The signal that ended this sleep may have been the one that others were to be woken by.
      if (!is_last) alarm_.cq_->arm(engine::Cq::Arm::kAny);
      if (!is_last || alarm_.is_event_wanted_.load()) return;
      alarm_.cq_->arm(engine::Cq::Arm::kOff);
      // One that has begun meanwhile; its own arm() may have come before this.
      if (alarm_.sleepers_.load() != 0 || alarm_.is_event_wanted_.load()) {
        alarm_.cq_->arm(engine::Cq::Arm::kAny);
        base::raise_event(alarm_.fd_);
      }
    }
    int fd() const { return alarm_.fd_; }
    // fd() was readable.
    void drain() { base::drain_event(fd()); }

   private:
    Alarm& alarm_;
  };

 private:
  int fd_ = -1;
  engine::Cq* cq_ = nullptr;
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> is_event_wanted_{false};
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_ALARM_H_
