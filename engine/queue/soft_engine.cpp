// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/queue/soft_engine.h"

#include <new>

#include "base/spin.h"
#include "engine/queue/soft_qp.h"

namespace ddpsock::engine {
namespace {

constexpr int kTries = 64;

constexpr Limits soft_limits(uint32_t max_regions) {
  return {
      .max_pds = 64,
      .max_regions = max_regions,
      .max_cq_depth = 1u << 16,
      .max_send_depth = 1u << 14,
      .max_recv_depth = 1u << 14,
      .max_srq_depth = 1u << 16,
      .max_ird = 128,
      .max_ord = 128,
      .max_slices = ddp::kMaxSlices,
      .max_inline = rdmap::kMaxInline,
  };
}

}  // namespace

SoftEngine::SoftEngine(const SoftConfig& config)
    : limits_(soft_limits(config.max_regions)),
      order_(config.order),
      max_fragments_(config.max_fragments),
      stags_(config.max_regions, config.random),
      pds_(new(std::nothrow) PdSlot[limits_.max_pds]) {}
SoftEngine::~SoftEngine() = default;

bool SoftEngine::has_memory() const {
  return stags_.is_valid() && pds_ != nullptr;
}

SoftEngine::PdSlot* SoftEngine::find(Pd pd) {
  if (pd.id == 0 || pd.id > limits_.max_pds || !pds_[pd.id - 1].is_open) return nullptr;
  return &pds_[pd.id - 1];
}

Result<Pd, SetupError> SoftEngine::open_pd() {
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < limits_.max_pds; ++i) {
    if (pds_[i].is_open) continue;
    pds_[i] = {.is_open = true, .users = 0};
    return Pd{i + 1};
  }
  return fail(SetupError::kLimit);
}

Status<SetupError> SoftEngine::close_pd(Pd pd) {
  const std::lock_guard lock(mutex_);
  PdSlot* slot = find(pd);
  if (slot == nullptr) return fail(SetupError::kBadArgument);
  if (slot->users != 0) return fail(SetupError::kInUse);
  slot->is_open = false;
  return {};
}

std::unique_lock<std::mutex> SoftEngine::lock(bool may_wait) {
  if (may_wait) return std::unique_lock(mutex_);
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int i = 0; i < kTries && !lock; ++i) {
    base::Spin::relax();
    lock.try_lock();
  }
  return lock;
}

void SoftEngine::leave_pd(Pd pd) {
  const std::lock_guard lock(mutex_);
  if (PdSlot* slot = find(pd)) --slot->users;
}

Result<Mr, RegisterError> SoftEngine::register_memory(const MemoryDesc& desc) {
  const std::lock_guard lock(mutex_);
  PdSlot* slot = find(desc.pd);
  if (slot == nullptr) return fail(RegisterError::kBadRegion);
  const rdmap::MemoryRegion region{.buffer = {desc.base_to, desc.memory},
                                   .rights = desc.rights,
                                   .pd = desc.pd.id,
                                   .qp = desc.qp};
  const auto stag = stags_.register_region(region);
  if (!stag) return fail(stag.error());
  if (desc.file >= 0 || desc.rights.has_any(rdmap::kRemoteRead))
    stags_.note_shared(*stag, share(*stag, region, desc.file));
  ++slot->users;
  return Mr{*stag, desc.base_to, desc.memory.size(), desc.pd};
}

Status<DeregisterError> SoftEngine::deregister(const Mr& mr) {
  const std::lock_guard lock(mutex_);
  const auto done = stags_.deregister(mr.stag);
  if (!done) return fail(done.error());
  if (PdSlot* slot = find(mr.pd)) --slot->users;
  return {};
}

Result<std::unique_ptr<Cq>, SetupError> SoftEngine::make_cq(const CqAttr& attr) {
  if (attr.depth == 0) return fail(SetupError::kBadArgument);
  if (attr.depth > limits_.max_cq_depth) return fail(SetupError::kLimit);
  std::unique_ptr<SoftCq> cq(new (std::nothrow) SoftCq(*this, attr));
  if (!cq || !cq->has_memory()) return fail(SetupError::kNoMemory);
  return cq;
}

Result<std::unique_ptr<Srq>, SetupError> SoftEngine::make_srq(const SrqAttr& attr) {
  if (attr.cq == nullptr || attr.depth == 0) return fail(SetupError::kBadArgument);
  if (attr.depth > limits_.max_srq_depth) return fail(SetupError::kLimit);
  {
    const std::lock_guard lock(mutex_);
    PdSlot* slot = find(attr.pd);
    if (slot == nullptr) return fail(SetupError::kBadArgument);
    ++slot->users;
  }
  std::unique_ptr<SoftSrq> srq(new (std::nothrow) SoftSrq(*this, attr));
  if (!srq) {
    leave_pd(attr.pd);
    return fail(SetupError::kNoMemory);
  }
  if (!srq->has_memory()) return fail(SetupError::kNoMemory);
  return srq;
}

Result<rdmap::QpAttr, SetupError> SoftEngine::join_pd(const QpAttr& attr) {
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr || attr.send_depth == 0 ||
      attr.recv_depth == 0) {
    return fail(SetupError::kBadArgument);
  }
  if (attr.srq != nullptr) {
    const auto& srq = static_cast<const SoftSrq&>(*attr.srq);
    if (srq.pd() != attr.pd || srq.cq() != attr.recv_cq) return fail(SetupError::kBadArgument);
  }
  if (attr.send_depth > limits_.max_send_depth || attr.recv_depth > limits_.max_recv_depth ||
      attr.max_ird > limits_.max_ird || attr.max_ord > limits_.max_ord) {
    return fail(SetupError::kLimit);
  }
  const std::lock_guard lock(mutex_);
  PdSlot* slot = find(attr.pd);
  if (slot == nullptr) return fail(SetupError::kBadArgument);
  ++slot->users;
  rdmap::QpAttr core;
  core.number = next_qp_++;
  core.pd = attr.pd.id;
  core.send_depth = attr.send_depth;
  core.recv_depth = attr.recv_depth;
  core.max_ird = attr.max_ird;
  core.max_ord = attr.max_ord;
  core.counters = attr.counters;
  core.order = order_;
  core.max_fragments = max_fragments_;
  return core;
}

Result<std::unique_ptr<Qp>, SetupError> SoftEngine::make_qp(const QpAttr& attr) {
  const auto core = join_pd(attr);
  if (!core) return fail(core.error());
  std::unique_ptr<SoftQp> qp(new (std::nothrow) SoftQp(*this, attr, *core));
  if (!qp) {
    leave_pd(attr.pd);
    return fail(SetupError::kNoMemory);
  }
  if (!qp->has_memory()) return fail(SetupError::kNoMemory);
  return qp;
}

}  // namespace ddpsock::engine
