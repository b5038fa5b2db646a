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

bool are_rights(unsigned rights) {
  return rights != 0 && (rights & ~kAllRights) == 0;
}

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

Result<ddp_region> Regions::add(Link node, const engine::MemoryDesc& desc) {
  const auto mr = engine_.register_memory(desc);
  if (!mr) return fail_errno(errno_of(mr.error()));
  node->mr = *mr;
  const std::lock_guard lock(mutex_);
  node->next = std::move(first_);
  first_ = std::move(node);
  return ddp_region{.stag = mr->stag,
                    .rights = desc.rights.bits,
                    .to = desc.base_to,
                    .length = desc.memory.size()};
}

Result<ddp_region> Regions::add(MutBytes memory, unsigned rights, engine::Pd pd, uint32_t qp) {
  const auto to = reinterpret_cast<uint64_t>(memory.data());
  if (!are_rights(rights)) return fail_errno(EINVAL);
  if (memory.size() > std::numeric_limits<uint64_t>::max() - to) return fail_errno(EINVAL);
  Link node(new (std::nothrow) Node);
  if (!node) return fail_errno(ENOMEM);
  return add(std::move(node), {.memory = memory,
                               .base_to = to,
                               .rights = {static_cast<uint8_t>(rights)},
                               .pd = pd,
                               .qp = qp});
}

Result<ddp_region> Regions::allocate(size_t length, unsigned rights, engine::Pd pd, uint32_t qp) {
  if (!are_rights(rights)) return fail_errno(EINVAL);
  const bool is_for_readers = (rights & (DDP_REMOTE_WRITE | DDP_REMOTE_ATOMIC)) == 0;
  auto memory = engine::shm::RegionMemory::make(length, is_for_readers);
  if (!memory) return fail(memory.error());
  Link node(new (std::nothrow) Node);
  if (!node) return fail_errno(ENOMEM);
  const MutBytes bytes = (*memory)->bytes().first(length);
  // Nobody is to reach by itself what it may not reach at all.
  const bool is_remote = (rights & ~unsigned{DDP_LOCAL_WRITE}) != 0;
  const int file = is_remote ? (*memory)->file() : -1;
  node->own = std::move(*memory);
  return add(std::move(node), {.memory = bytes,
                               .base_to = reinterpret_cast<uint64_t>(bytes.data()),
                               .rights = {static_cast<uint8_t>(rights)},
                               .pd = pd,
                               .qp = qp,
                               .file = file});
}

Regions::Link* Regions::find(uint32_t stag, bool is_own) {
  for (Link* at = &first_; *at; at = &(*at)->next)
    if ((*at)->mr.stag == stag) return ((*at)->own != nullptr) == is_own ? at : nullptr;
  return nullptr;
}

Status<> Regions::end(uint32_t stag, bool is_own) {
  const std::lock_guard lock(mutex_);
  Link* at = find(stag, is_own);
  if (at == nullptr) return fail_errno(EINVAL);
  if (!is_deregistered(engine_, (*at)->mr)) return fail_errno(EBUSY);
  *at = std::move((*at)->next);
  return {};
}

Status<> Regions::remove(uint32_t stag) {
  return end(stag, false);
}

Status<> Regions::free(uint32_t stag) {
  return end(stag, true);
}

Status<> Regions::take_back(uint32_t stag) {
  const std::lock_guard lock(mutex_);
  Link* at = find(stag, true);
  if (at == nullptr) return fail_errno(EINVAL);
  engine::shm::RegionMemory& memory = *(*at)->own;
  if (const auto ready = memory.prepare_to_move(); !ready) return ready;
  if (!is_deregistered(engine_, (*at)->mr)) return fail_errno(EBUSY);
  const auto moved = memory.move();
  *at = std::move((*at)->next);
  return moved;
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
