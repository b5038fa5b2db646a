// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What all engines in software share: protection domains, registered memory, completion queues, and
// the one lock that the protocol cores ask for (rdmap/stag_table.h). The lock is held while cores
// decide, never while bytes move, except for small ones out of a spill buffer.
#ifndef DDPSOCK_ENGINE_SOFT_SOFT_ENGINE_H_
#define DDPSOCK_ENGINE_SOFT_SOFT_ENGINE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "engine/engine.h"
#include "engine/soft/channel.h"
#include "rdmap/completion_queue.h"
#include "rdmap/qp.h"
#include "rdmap/shared_receives.h"
#include "rdmap/stag_table.h"

namespace ddpsock::engine {

class SoftEngine;

// MPA and RDMAP know nothing of each other; both know the four RTR messages.
rdmap::Rtr to_rdmap(mpa::Rtr rtr);

// With the lock, in an advance() or abort() that may have ended the queue pair: waits for threads
// that were let in to post before, so that all that was accepted completes before the end is told.
void flush_late_posts(rdmap::Qp& core);

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

struct SoftConfig {
  Limits limits;
  // Keys of STags. Simulations hand in their own source, to be repeatable.
  rdmap::StagTable::RandomSource random = base::fill_random;
};

class SoftEngine : public Engine {
 public:
  const Limits& limits() const override { return limits_; }
  Result<Pd, SetupError> open_pd() override;
  Status<SetupError> close_pd(Pd pd) override;
  Result<Mr, RegisterError> register_memory(const MemoryDesc& desc) override;
  Status<DeregisterError> deregister(const Mr& mr) override;
  Result<std::unique_ptr<Cq>, SetupError> make_cq(const CqAttr& attr) override;
  Result<std::unique_ptr<Srq>, SetupError> make_srq(const SrqAttr& attr) override;
  Result<std::unique_ptr<Qp>, SetupError> make_qp(const QpAttr& attr) override;

  // The byte stream behind a Start::lower, or beside a Start::stream.
  virtual Result<std::unique_ptr<Channel>, StartError> open_channel(const Start& start) = 0;

  // For the queue pairs of this engine.
  std::mutex& mutex() { return mutex_; }
  // Taken. Unless `may_wait`, tries for about as long as cores decide something, and may fail.
  std::unique_lock<std::mutex> lock(bool may_wait);
  rdmap::StagTable& stags() { return stags_; }
  void leave_pd(Pd pd);  // takes the lock

 protected:
  explicit SoftEngine(const SoftConfig& config);
  ~SoftEngine() override;
  bool has_memory() const;

  // What make_qp() checks, counts and converts for every kind of queue pair.
  Result<rdmap::QpAttr, SetupError> join_pd(const QpAttr& attr);

 private:
  struct PdSlot {
    bool is_open = false;
    uint32_t users = 0;
  };
  PdSlot* find(Pd pd);

  const Limits limits_;
  std::mutex mutex_;
  rdmap::StagTable stags_;
  std::unique_ptr<PdSlot[]> pds_;
  uint32_t next_qp_ = 1;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_SOFT_SOFT_ENGINE_H_
