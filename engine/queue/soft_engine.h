// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What all engines in software share: protection domains, registered memory, completion queues, and
// the one lock that the protocol cores ask for (rdmap/stag_table.h). The lock is held while cores
// decide, never while more bytes move than a few (those of a spill buffer, of a small record).
#ifndef DDPSOCK_ENGINE_QUEUE_SOFT_ENGINE_H_
#define DDPSOCK_ENGINE_QUEUE_SOFT_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "engine/engine.h"
#include "engine/queue/carrier.h"
#include "engine/queue/soft_queues.h"
#include "rdmap/qp.h"
#include "rdmap/stag_table.h"

namespace ddpsock::engine {

namespace shm {
class RegionTable;
}

// What all their queue pairs can.
inline constexpr Capabilities kSoftCapabilities{
    Capability::kOneSided,         Capability::kAtomics,  Capability::kImmediate,
    Capability::kRemoteInvalidate, Capability::kSharedCq, Capability::kSrq,
};

struct SoftConfig {
  uint32_t max_regions = 0;
  // Keys of STags. Simulations hand in their own source, to be repeatable.
  rdmap::StagTable::RandomSource random = base::fill_random;
  // How its carriers keep segments in order, and how many ranges beyond gaps one queue may hold.
  ddp::LlpOrder order = ddp::LlpOrder::kInOrder;
  uint32_t max_fragments = rdmap::QpAttr{}.max_fragments;
};

class SoftEngine : public Engine {
 public:
  Capabilities capabilities() const override { return kSoftCapabilities; }
  const Limits& limits() const override { return limits_; }
  Result<Pd, SetupError> open_pd() override;
  Status<SetupError> close_pd(Pd pd) override;
  Result<Mr, RegisterError> register_memory(const MemoryDesc& desc) override;
  Status<DeregisterError> deregister(const Mr& mr) override;
  Result<std::unique_ptr<Cq>, SetupError> make_cq(const CqAttr& attr) override;
  Result<std::unique_ptr<Srq>, SetupError> make_srq(const SrqAttr& attr) override;
  Result<std::unique_ptr<Qp>, SetupError> make_qp(const QpAttr& attr) override;

  // For a Start::lower, as usual.
  virtual Result<std::unique_ptr<Carrier>, StartError> open_carrier(const Start& start,
                                                                    const QpAttr& attr) = 0;

  // For the queue pairs of this engine.
  std::mutex& mutex() { return mutex_; }
  // Taken. Unless `may_wait`, tries for about as long as cores decide something, and may fail.
  std::unique_lock<std::mutex> lock(bool may_wait);
  rdmap::StagTable& stags() { return stags_; }
  // What of its registered memory peers on this host may reach by themselves; nullptr: nothing.
  virtual shm::RegionTable* shared_regions() { return nullptr; }
  void leave_pd(Pd pd);  // takes the lock

 protected:
  explicit SoftEngine(const SoftConfig& config);
  ~SoftEngine() override;
  bool has_memory() const;
  // `region` has been registered as `stag`, and is the first bytes of `file`, or of none (-1): as
  // shm::RegionTable::share(). With the lock.
  virtual std::atomic<uint64_t>* share(uint32_t /*stag*/, const rdmap::MemoryRegion& /*region*/,
                                       int /*file*/) {
    return nullptr;
  }

  // What make_qp() checks, counts and converts for every kind of queue pair.
  Result<rdmap::QpAttr, SetupError> join_pd(const QpAttr& attr);

 private:
  struct PdSlot {
    bool is_open = false;
    uint32_t users = 0;
  };
  PdSlot* find(Pd pd);

  const Limits limits_;
  const ddp::LlpOrder order_;
  const uint32_t max_fragments_;
  std::mutex mutex_;
  rdmap::StagTable stags_;
  std::unique_ptr<PdSlot[]> pds_;
  uint32_t next_qp_ = 1;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_QUEUE_SOFT_ENGINE_H_
