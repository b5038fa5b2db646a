// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where the completions of one or several connections come: the engine's completion queue, and the
// begin and end of each connection, which the engine has no completions for.
#ifndef DDPSOCK_MESSAGE_QUEUE_H_
#define DDPSOCK_MESSAGE_QUEUE_H_

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "base/fd.h"
#include "message/domain.h"
#include "message/handle.h"
#include "message/regions.h"

namespace ddpsock::message {

// Connections by the number of their queue pair.
class QpTable {
 public:
  // False: no memory.
  bool insert(Connection& c);
  void erase(const Connection& c);
  Connection* find(uint32_t qp) const;
  uint32_t size() const { return size_; }
  template <typename Visit>
  void visit(Visit visit) const {
    for (uint32_t i = 0; i < room_; ++i)
      if (slots_[i] != nullptr) visit(*slots_[i]);
  }

 private:
  void place(Connection& c);
  std::unique_ptr<Connection*[]> slots_;
  uint32_t room_ = 0;  // a power of two, at least twice size_
  uint32_t size_ = 0;
};

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

class Queue final : public Handle {
 public:
  // For a program's handle: EINVAL, ENOSPC, ENOMEM, EMFILE. Counts one reference.
  static Result<Queue*> make(unsigned depth);
  // For one connection alone, with room for whatever it can post.
  static Result<Queue*> make_own(Domain& domain, const ddp_depths& depths);
  void add_reference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop_reference();

  engine::Cq& cq() { return *cq_; }
  engine::Pd pd() const { return pd_; }

  bool is_own() const { return !is_shared_; }
  // False: poll() would find nothing that is there already. Without a lock.
  bool has_any() const { return cq_->has_any() || has_event_.load(std::memory_order_relaxed); }
  // The program's descriptor of a made queue: readable as ddp_event_fd says. -1: no descriptors.
  int open_descriptor() const;

  Status<> add(Connection& c);
  // Not with a lock of `c` held. Completions of it that nobody has taken are dropped from now on.
  void remove(Connection& c);
  // `c` has begun, or ended: once each.
  void note_established(Connection& c);
  void note_ended(Connection& c);
  // A connection has posts with DDP_MORE: to be sent by the next poll or wait.
  void note_held_back() { has_held_back_.store(true); }
  // Somebody has told the program otherwise.
  void forget_established(Connection& c);
  // Those who sleep on it must look again.
  void wake();
  // Whether calls are expected only after the event fd has said so.
  bool is_driven_by_events() const { return is_event_wanted_.load(std::memory_order_relaxed); }

  // Prepares a sleep: afterwards, and after one more look for what is waited for, poll fd(). Who
  // drives connections itself and finds completions need not be told of them: nothing is armed any
  // more once the last sleeper is awake.
  class Sleeper {
   public:
    explicit Sleeper(Queue& queue);
    ~Sleeper();
    int fd() const { return queue_.event_fd_.get(); }
    // fd() was readable.
    void drain();

   private:
    Queue& queue_;
  };

  Queue* queue() override { return this; }
  void close() override;
  void destroy() override { drop_reference(); }
  Result<ddp_region> register_memory(MutBytes memory, unsigned rights) override;
  Status<> deregister(uint32_t stag) override;
  Result<unsigned> poll(std::span<ddp_completion> out) override;
  Result<unsigned> wait(std::span<ddp_completion> out, int timeout_ms) override {
    return wait_until_closed(is_closed_, out, timeout_ms);
  }
  // The same for a call by the descriptor of a connection, which may outlive the queue's. Who sets
  // `is_closed` calls wake().
  Result<unsigned> wait_until_closed(const std::atomic<bool>& is_closed,
                                     std::span<ddp_completion> out, int timeout_ms);
  Result<int> event_fd() override;
  void set_spin(Duration spin) override { spin_ns_.store(spin.ns, std::memory_order_relaxed); }
  Duration spin() const override { return {spin_ns_.load(std::memory_order_relaxed)}; }

 private:
  Queue(Domain& domain, engine::Pd pd, bool is_shared);
  ~Queue() override;
  Status<> open(unsigned depth);

  unsigned take(std::span<ddp_completion> out);
  unsigned take_established(std::span<ddp_completion> out);
  unsigned take_work(std::span<ddp_completion> out);
  unsigned take_ended(std::span<ddp_completion> out);
  static void give_back(const engine::Completion& from, ddp_completion& to);
  void translate(const engine::Completion& from, Connection& c, ddp_completion& to) const;
  void link(Connection& c);
  void unlink_idle();
  void send_held_back();
  unsigned drive(std::span<ddp_completion> out);
  bool has_ended() const;
  class Sleep;
  Status<> sleep(Sleeper& sleeper, Time deadline);

  Domain& domain_;
  const engine::Pd pd_;
  const bool is_shared_;
  std::atomic<uint32_t> references_{1};
  std::atomic<int64_t> spin_ns_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> is_event_wanted_{false};
  std::atomic<bool> is_closed_{false};
  std::atomic<bool> has_held_back_{false};
  LookHabit habit_;
  base::UniqueFd event_fd_;
  Regions regions_;
  std::unique_ptr<engine::Cq> cq_;

  // Held by whoever goes through the connections to drive them; then mutex_ for changes too.
  // Before a connection's own lock.
  std::mutex list_mutex_;
  Connection* own_ = nullptr;  // of a queue that is its own: it is what calls come from
  mutable std::mutex mutex_;   // after a connection's lock
  QpTable connections_;
  // Here, because sixteen of them take longer to make than to ask for.
  std::array<engine::Completion, 16> raw_;
  Connection* first_event_ = nullptr;   // those with something to tell
  std::atomic<bool> has_event_{false};  // the same, for who does not hold mutex_
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_QUEUE_H_
