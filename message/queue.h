// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where the completions of one or several connections come, and who waits for them.
#ifndef DDPSOCK_MESSAGE_QUEUE_H_
#define DDPSOCK_MESSAGE_QUEUE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "message/alarm.h"
#include "message/domain.h"
#include "message/handle.h"
#include "message/inbox.h"
#include "message/regions.h"

namespace ddpsock::message {

// Whether a wait should look before it sleeps. The sleep sees what is there, too: where looks have
// been in vain a few times they are left out, but for one now and then.
class LookHabit {
 public:
  bool is_worth();
  void note(bool has_found);

 private:
  static constexpr uint32_t kVain = 4, kProbe = 64;
  std::atomic<uint32_t> vain_{0};
};

class Queue final : public SharedHandle {
 public:
  // For a program's handle: EINVAL, ENOSPC, ENOMEM, EMFILE.
  static Result<Queue*> make(unsigned depth);
  // For one connection alone, with room for whatever it can post.
  static Result<Queue*> make_own(Domain& domain, const ddp_depths& depths);

  engine::Cq& cq() { return *cq_; }
  engine::Pd pd() const { return pd_; }
  bool is_own() const { return pd_ == domain_.pd(); }
  Inbox& inbox() { return inbox_; }
  Alarm& alarm() { return alarm_; }

  Status<> add(Progress& c);
  // Not with a lock of `c` held. Completions of it that nobody has taken are dropped from now on.
  void remove(Progress& c);
  // `c` has begun (DDP_ESTABLISHED), or ended: once each.
  void tell(Progress& c, ddp_kind kind);
  // A connection has posts with DDP_MORE: to be sent by the next poll or wait.
  void note_held_back() { has_held_back_.store(true); }

  Queue* queue() override { return this; }
  void close() override;
  Result<ddp_region> register_memory(MutBytes memory, unsigned rights) override;
  Status<> deregister(uint32_t stag) override;
  Result<ddp_region> allocate(size_t length, unsigned rights) override;
  Status<> free(uint32_t stag) override;
  Status<> take_back(uint32_t stag) override;
  Result<unsigned> poll(std::span<ddp_completion> out) override;
  Result<unsigned> wait(std::span<ddp_completion> out, int timeout_ms) override {
    return wait_until_closed(is_closed_, out, timeout_ms);
  }
  // The same for a call by the descriptor of a connection, which may outlive the queue's. Who sets
  // `is_closed` rings the alarm.
  Result<unsigned> wait_until_closed(const std::atomic<bool>& is_closed,
                                     std::span<ddp_completion> out, int timeout_ms);
  // Until the alarm rings, or one of the connections, or `only` this one, has something to do.
  Status<> sleep(Alarm::Sleeper& sleeper, Time deadline, Progress* only = nullptr);
  Result<int> event_fd() override { return alarm_.want_events(); }
  void set_spin(Duration spin) override { spin_ns_.store(spin.ns, std::memory_order_relaxed); }
  Duration spin() const override { return {spin_ns_.load(std::memory_order_relaxed)}; }

 private:
  Queue(Domain& domain, engine::Pd pd);
  ~Queue() override;
  Status<> open(unsigned depth);

  unsigned take(std::span<ddp_completion> out);
  // As Progress::is_look_due().
  bool is_look_due();
  void send_held_back();
  unsigned drive(std::span<ddp_completion> out);
  class Sleep;

  Domain& domain_;
  const engine::Pd pd_;
  std::atomic<int64_t> spin_ns_{0};
  std::atomic<bool> is_closed_{false};
  std::atomic<bool> has_held_back_{false};
  static constexpr uint32_t kFoundInARow = 32;
  std::atomic<uint32_t> found_{0};
  LookHabit habit_;
  Regions regions_;
  std::unique_ptr<engine::Cq> cq_;
  Alarm alarm_;
  // Held by whoever goes through the connections to drive them. Before a connection's own lock.
  std::mutex list_mutex_;
  Progress* own_ = nullptr;  // of a queue that is its own: it is what calls come from
  Inbox inbox_;
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_QUEUE_H_
