// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completion queues and shared receive queues of engines in software: the cores of rdmap/ under the
// engine's lock, and who waits for them.
#ifndef DDPSOCK_ENGINE_QUEUE_SOFT_QUEUES_H_
#define DDPSOCK_ENGINE_QUEUE_SOFT_QUEUES_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "engine/engine.h"
#include "rdmap/completion_queue.h"
#include "rdmap/shared_receives.h"

namespace ddpsock::engine {

class SoftEngine;

class SoftCq final : public Cq {
 public:
  SoftCq(SoftEngine& engine, const CqAttr& attr);
  ~SoftCq() override;
  uint32_t poll(std::span<Completion> out) override;
  bool has_any() const override { return core_.has_any(); }
  void arm(Arm what) override;

  bool has_memory() const { return core_.has_memory(); }
  // REQUIRES: the engine's lock for core() and take_event().
  rdmap::CompletionQueue& core() { return core_; }
  // Whether a signal is due that only this caller gives now, by signal() and without the lock: who
  // it wakes wants the lock at once.
  bool take_event() { return core_.take_event() && event_fd_ >= 0; }
  void signal();

 private:
  SoftEngine& engine_;
  rdmap::CompletionQueue core_;
  int event_fd_;
};

class SoftSrq final : public Srq {
 public:
  // Counted in its Pd by the caller, and uncounted here.
  SoftSrq(SoftEngine& engine, const SrqAttr& attr);
  ~SoftSrq() override;

  Posted recv(std::span<const RecvWr> work) override;
  void set_limit(uint32_t level) override;
  void close() override;

  bool has_memory() const { return core_->has_memory(); }
  Pd pd() const { return pd_; }
  const Cq* cq() const { return cq_; }
  // As for SoftCq.
  rdmap::SharedReceives& core() { return *core_; }
  bool take_event() { return core_->take_event() && event_fd_ >= 0; }
  void signal();

 private:
  SoftEngine& engine_;
  const Pd pd_;
  Cq* const cq_;
  std::optional<rdmap::SharedReceives> core_;  // under the lock
  int event_fd_;
};

// Those of one queue pair.
struct SoftQueues {
  SoftCq& send;
  SoftCq& receive;
  SoftSrq* shared = nullptr;

  // Wakes who waits for completions that there are now; lets go of the lock while it does.
  void signal(std::unique_lock<std::mutex>& lock) {
    const bool is_for_sends = send.take_event();
    const bool is_for_receives = &receive != &send && receive.take_event();
    const bool is_for_shared = shared != nullptr && shared->take_event();
    if (!is_for_sends && !is_for_receives && !is_for_shared) return;
    lock.unlock();
    if (is_for_sends) send.signal();
    if (is_for_receives) receive.signal();
    if (is_for_shared) shared->signal();
    lock.lock();
  }
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_QUEUE_SOFT_QUEUES_H_
