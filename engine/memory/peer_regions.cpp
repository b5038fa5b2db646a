// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/peer_regions.h"

#include <sys/mman.h>

#include <new>

#include "base/sparse.h"

namespace ddpsock::engine::shm {
namespace {

constexpr rdmap::Rights kWriting = rdmap::kRemoteWrite | rdmap::kRemoteAtomic;

// A fault a page costs more than finding them all at once. Their owner has provided them, but for
// one that means harm: then so much is.
constexpr size_t kMostAtOnce = 2u << 20;

// Neither for children nor for dumps of this process. nullptr: it cannot be had.
uint8_t* map_region(int file, size_t size, bool may_write) {
  void* p = base::map_sparse(size, file, 0, may_write ? PROT_READ | PROT_WRITE : PROT_READ);
  if (p == nullptr) return nullptr;
  madvise(p, size, MADV_DONTFORK);
  madvise(p, size, MADV_DONTDUMP);
  if (size <= kMostAtOnce) (void)populate(p, size, may_write);
  return static_cast<uint8_t*>(p);
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
  const MessageMemory::PeerTable told = memory_.peer_table();
  if (!told.place.is_there()) return false;
  is_hopeless_ = true;
  slots_.reset(new (std::nothrow) Slot[kSlots]);
  if (!slots_ || told.place.row >= kMostRows) return false;
  const auto file = open_sealed_file(told.pid, told.place.number(), kRegionTableSize);
  if (!file) return false;
  const auto mapped = map_for_reading(file->get(), kRegionTableSize);
  if (!mapped) return false;
  const auto* table = reinterpret_cast<const RegionTableFile*>(*mapped);
  if (!is_of_peer(*table, told.place.row)) {
    munmap(const_cast<uint8_t*>(*mapped), kRegionTableSize);
    return false;
  }
  pid_ = told.pid;
  row_ = &table->rows[told.place.row];
  table_ = table;
  is_hopeless_ = false;
  return true;
}

// Nobody but the owner writes there, and it writes of its own ends alone.
bool PeerRegions::is_of_peer(const RegionTableFile& table, uint32_t row) const {
  const RegionRow& r = table.rows[row];
  const uint64_t cookie = r.cookie.load(std::memory_order_acquire);
  return memory_.peer_end() == ConnectionEnd{{r.netns, cookie}, r.is_connected_end != 0};
}

void PeerRegions::sweep() {
  if (table_ == nullptr) return;
  for (uint32_t i = 0; i < kSlots; ++i)
    if (slots_[i].at != nullptr && !slots_[i].is_live()) empty(slots_[i]);
}

// Whether the slot of `stag` is about it now.
bool PeerRegions::open(uint32_t stag) {
  const uint32_t index = rdmap::index_of(stag);
  if (index == 0 || index > kMostShared || !open_table()) return false;
  const RegionEntry& entry = table_->entries[index - 1];
  const uint64_t serial = entry.serial.load(std::memory_order_acquire);
  Slot& slot = slot_of(stag);
  // What is only known by its address gives way: it costs nothing to learn again.
  if (!slot.is_live() || slot.at == nullptr) empty(slot);
  if (slot.entry != nullptr) return false;
  if (serial == 0) {
    // So that it is not looked for again.
    slot = {.stag = stag, .rights = {}, .serial = 0, .entry = &entry};
    return false;
  }
  fill(slot, entry, serial);
  if (slot.stag == stag && slot.is_live()) return true;
  empty(slot);
  return false;
}

// `slot` is what `entry` says: mapped, or its address, if that is for us and can be had.
void PeerRegions::fill(Slot& slot, const RegionEntry& entry, uint64_t serial) {
  slot = {.stag = entry.stag,
          .rights = {static_cast<uint8_t>(entry.rights)},
          .serial = serial,
          .entry = &entry,
          .base_to = entry.base_to,
          .length = entry.length};
  const uint64_t inode = entry.inode;
  const uint32_t number = entry.file;
  const uint64_t address = entry.address;
  const bool is_ours = entry.pd == row_->pd && (entry.qp == rdmap::kAnyQp || entry.qp == row_->qp);
  // Between two looks at the serial all of it was one entry's.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!slot.is_live() || !is_ours) return;
  if (number == kNoFile) {
    if (memory_.can_read_peer()) slot.address = address;
    return;
  }
  if (slot.length == 0 || slot.length > kMostInFile) return;
  const size_t size = whole_pages(slot.length);
  const auto file = open_sealed_file(pid_, number, size);
  // Its owner may have closed it, and the number be another's.
  if (!file || file_of(file->get()).inode != inode) return;
  slot.at = map_region(file->get(), size, slot.rights.has_any(kWriting));
  slot.mapped = size;
}

void PeerRegions::empty(Slot& slot) {
  if (slot.at != nullptr) munmap(slot.at, slot.mapped);
  slot = {};
}

}  // namespace ddpsock::engine::shm
