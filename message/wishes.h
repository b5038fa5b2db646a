// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the program wants of a socket in message mode, until that has a queue pair.
#ifndef DDPSOCK_MESSAGE_WISHES_H_
#define DDPSOCK_MESSAGE_WISHES_H_

#include <atomic>
#include <cerrno>
#include <mutex>

#include "message/queue.h"
#include "message/srq.h"
#include "mpa/agreement.h"

namespace ddpsock::message {

// A listener's go to what it accepts.
struct Settings {
  ddp_depths depths{.send = 64, .receive = 64, .ird = 16, .ord = 16};
  mpa::PrivateData private_data{};
  bool wants_crc = true;
  bool wants_markers = false;
  bool is_caller_driven = false;
  Duration spin{};
};

// Any thread. The lock comes before all others.
class Wishes {
 public:
  Wishes(Domain& domain, const Settings& settings) : domain_(domain), settings_(settings) {}
  Settings settings() const {
    const std::lock_guard lock(mutex_);
    return settings_;
  }
  // change(Settings&). EBUSY once settled, as all that follow.
  template <typename Change>
  Status<> change(Change change) {
    const std::lock_guard lock(mutex_);
    if (is_settled_.load()) return fail_errno(EBUSY);
    change(settings_);
    return {};
  }
  // EINVAL beyond the engine's limits.
  Status<> set_depths(const ddp_depths& depths) {
    const engine::Limits& most = domain_.engine().limits();
    if (depths.send == 0 || depths.send > most.max_send_depth || depths.receive == 0 ||
        depths.receive > most.max_recv_depth || depths.ird > most.max_ird ||
        depths.ord > most.max_ord) {
      return fail_errno(EINVAL);
    }
    return change([&](Settings& s) { s.depths = depths; });
  }
  // Each keeps a reference. A shared receive queue brings its completion queue with it: EINVAL for
  // another one.
  Status<> set_queue(Queue& queue) {
    const std::lock_guard lock(mutex_);
    if (is_settled()) return fail_errno(EBUSY);
    if (srq_ && &srq_->completions() != &queue) return fail_errno(EINVAL);
    queue_ = keep(queue);
    return {};
  }
  Status<> set_srq(Srq& srq) {
    const std::lock_guard lock(mutex_);
    if (is_settled()) return fail_errno(EBUSY);
    srq_ = keep(srq);
    queue_ = keep(srq.completions());
    return {};
  }
  // What accepted connections have in common.
  void share(Wishes& accepted) const {
    const std::lock_guard lock(mutex_);
    accepted.settings_ = settings_;
    if (queue_) accepted.queue_ = keep(*queue_);
    if (srq_) accepted.srq_ = keep(*srq_);
  }

  // At any time; which start-up goes by is its own affair.
  void set_private_data(const mpa::PrivateData& data) {
    const std::lock_guard lock(mutex_);
    settings_.private_data = data;
  }
  void set_spin(Duration spin) {
    const std::lock_guard lock(mutex_);
    settings_.spin = spin;
    if (queue_) queue_->set_spin(spin);
  }
  Duration spin() const {
    const std::lock_guard lock(mutex_);
    return queue_ ? queue_->spin() : settings_.spin;
  }

  // Once, at the first call that needs it: open(settings, queue, engine::Srq*). ENOMEM, EMFILE, and
  // what `open` answers.
  template <typename Open>
  Status<> settle(Open open) {
    const std::lock_guard lock(mutex_);
    if (is_settled()) return {};
    if (!queue_) {
      const auto own = Queue::make_own(domain_, settings_.depths);
      if (!own) return fail(own.error());
      queue_.reset(*own);
      queue_->set_spin(settings_.spin);
    }
    const auto opened = open(settings_, *queue_, srq_ ? &srq_->receives() : nullptr);
    if (opened) is_settled_.store(true, std::memory_order_release);
    return opened;
  }
  bool is_settled() const { return is_settled_.load(std::memory_order_acquire); }
  // REQUIRES: settled.
  bool has_srq() const { return srq_ != nullptr; }
  // Who sleeps on the queue must look again.
  void ring() {
    const std::lock_guard lock(mutex_);
    if (queue_) queue_->alarm().ring();
  }

 private:
  Domain& domain_;
  mutable std::mutex mutex_;
  Settings settings_;
  Kept<Queue> queue_;  // once settled, or set by the program
  Kept<Srq> srq_;
  std::atomic<bool> is_settled_{false};
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_WISHES_H_
