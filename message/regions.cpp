// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/regions.h"

#include <sched.h>

#include <cerrno>
#include <limits>
#include <new>

namespace ddpsock::message {
namespace {

constexpr unsigned kAllRights =
    DDP_LOCAL_WRITE | DDP_REMOTE_READ | DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC;
static_assert(DDP_LOCAL_WRITE == rdmap::kLocalWrite.bits);
static_assert(DDP_REMOTE_READ == rdmap::kRemoteRead.bits);
static_assert(DDP_REMOTE_WRITE == rdmap::kRemoteWrite.bits);
static_assert(DDP_REMOTE_ATOMIC == rdmap::kRemoteAtomic.bits);

int errno_of(engine::RegisterError error) {
  switch (error) {
    case engine::RegisterError::kTableFull:
      return ENOSPC;
    case engine::RegisterError::kNoRandom:
      return EAGAIN;
    case engine::RegisterError::kBadRegion:
      break;
  }
  return EINVAL;
}

// A Write that is being placed has its region for the time of a copy, and one that may not touch it
// for less: those are waited for. What is asked of a peer is not.
bool is_deregistered(engine::Engine& engine, const engine::Mr& mr) {
  constexpr int kMostYields = 64;
  for (int i = 0; i < kMostYields; ++i) {
    if (engine.deregister(mr)) return true;
    sched_yield();
  }
  return false;
}

}  // namespace

Result<ddp_region> Regions::add(MutBytes memory, unsigned rights, engine::Pd pd, uint32_t qp) {
  const auto to = reinterpret_cast<uint64_t>(memory.data());
  if (rights == 0 || (rights & ~kAllRights) != 0) return fail_errno(EINVAL);
  if (memory.size() > std::numeric_limits<uint64_t>::max() - to) return fail_errno(EINVAL);
  std::unique_ptr<Node> node(new (std::nothrow) Node);
  if (!node) return fail_errno(ENOMEM);
  const auto mr = engine_.register_memory({.memory = memory,
                                           .base_to = to,
                                           .rights = {static_cast<uint8_t>(rights)},
                                           .pd = pd,
                                           .qp = qp});
  if (!mr) return fail_errno(errno_of(mr.error()));
  node->mr = *mr;
  const std::lock_guard lock(mutex_);
  node->next = std::move(first_);
  first_ = std::move(node);
  return ddp_region{.stag = mr->stag, .rights = rights, .to = to, .length = memory.size()};
}

Status<> Regions::remove(uint32_t stag) {
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<Node>* at = &first_; *at; at = &(*at)->next) {
    if ((*at)->mr.stag != stag) continue;
    if (!is_deregistered(engine_, (*at)->mr)) return fail_errno(EBUSY);
    *at = std::move((*at)->next);
    return {};
  }
  return fail_errno(EINVAL);
}

void Regions::clear() {
  const std::lock_guard lock(mutex_);
  while (first_) {
    // With work still on it the STag is dead and the entry stays taken: better than memory that
    // is somebody else's by now.
    (void)is_deregistered(engine_, first_->mr);
    first_ = std::move(first_->next);
  }
}

}  // namespace ddpsock::message
