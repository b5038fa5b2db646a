// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/peer_regions.h"

#include <sys/mman.h>

#include <limits>
#include <new>

namespace ddpsock::engine::shm {
namespace {

constexpr rdmap::Rights kWriting = rdmap::kRemoteWrite | rdmap::kRemoteAtomic;

size_t whole_pages(uint64_t length) {
  return (length + kPage - 1) / kPage * kPage;
}

}  // namespace

PeerRegions::~PeerRegions() {
  for (uint32_t i = 0; slots_ != nullptr && i < kSlots; ++i) empty(slots_[i]);
  if (table_ != nullptr) munmap(const_cast<RegionTableFile*>(table_), kRegionTableSize);
}

// The peer may have none yet; once it has told of one, that is asked for once.
bool PeerRegions::open_table() {
  if (table_ != nullptr) [[likely]]
    return true;
  if (is_hopeless_) return false;
  peer_ = memory_.peer_table();
  if (peer_.place.file == 0) return false;
  is_hopeless_ = true;
  slots_.reset(new (std::nothrow) Slot[kSlots]);
  if (!slots_) return false;
  const auto file = open_sealed_file(peer_.pid, peer_.place.file, kRegionTableSize);
  if (!file) return false;
  const auto mapped = map_for_reading(file->get(), kRegionTableSize);
  if (!mapped) return false;
  madvise(const_cast<uint8_t*>(*mapped), kRegionTableSize, MADV_DONTFORK);
  table_ = reinterpret_cast<const RegionTableFile*>(*mapped);
  is_hopeless_ = table_->secret != peer_.place.secret;
  if (!is_hopeless_) return true;
  // The process id means somebody else by now.
  munmap(const_cast<RegionTableFile*>(table_), kRegionTableSize);
  table_ = nullptr;
  return false;
}

// Whether the slot of `stag` is about it now.
bool PeerRegions::map(uint32_t stag) {
  const uint32_t index = rdmap::index_of(stag);
  if (index >= kMostShared || !open_table()) return false;
  const RegionEntry& entry = table_->entries[index];
  const uint64_t serial = entry.serial.load(std::memory_order_acquire);
  Slot& slot = slot_of(stag);
  if (!slot.is_live()) empty(slot);
  if (serial == 0 || slot.entry != nullptr) return false;
  fill(slot, entry, serial);
  if (slot.stag == stag && slot.is_live()) return true;
  empty(slot);
  return false;
}

// `slot` is what `entry` says, mapped if that is for us and can be had.
void PeerRegions::fill(Slot& slot, const RegionEntry& entry, uint64_t serial) {
  slot = {.stag = entry.stag,
          .rights = {static_cast<uint8_t>(entry.rights)},
          .serial = serial,
          .entry = &entry,
          .base_to = entry.base_to,
          .length = entry.length};
  const uint64_t inode = entry.inode;
  const uint32_t number = entry.file;
  const bool is_ours =
      entry.pd == peer_.stream.pd && (entry.qp == rdmap::kAnyQp || entry.qp == peer_.stream.qp);
  // Between two looks at the serial all of it was one entry's.
  if (!slot.is_live() || !is_ours) return;
  constexpr uint64_t kMost = std::numeric_limits<ptrdiff_t>::max() / 2;
  if (slot.length == 0 || slot.length > kMost) return;
  const size_t size = whole_pages(slot.length);
  const auto file = open_sealed_file(peer_.pid, number, size);
  // Its owner may have closed it, and the number be another's.
  if (!file || file_of(file->get()).inode != inode) return;
  const int protection = PROT_READ | (slot.rights.has_any(kWriting) ? PROT_WRITE : 0);
  void* p = mmap(nullptr, size, protection, MAP_SHARED, file->get(), 0);
  if (p == MAP_FAILED) return;
  madvise(p, size, MADV_DONTFORK);
  slot.at = static_cast<uint8_t*>(p);
  slot.mapped = size;
}

void PeerRegions::empty(Slot& slot) {
  if (slot.at != nullptr) munmap(slot.at, slot.mapped);
  slot = {};
}

}  // namespace ddpsock::engine::shm
