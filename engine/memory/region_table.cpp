// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/region_table.h"

#include <sys/mman.h>

namespace ddpsock::engine::shm {

RegionTable::~RegionTable() {
  if (mapped_ != nullptr) munmap(mapped_, kRegionTableSize);
}

bool RegionTable::open() {
  if (mapped_ != nullptr) return true;
  auto made = make_mapped_file(kRegionTableName, kRegionTableSize, true);
  if (!made) return false;
  madvise(made->at, kRegionTableSize, MADV_DONTFORK);
  file_.emplace(std::move(made->file));
  mapped_ = reinterpret_cast<RegionTableFile*>(made->at);
  descriptor_.store(static_cast<uint32_t>(file_->number()) + 1, std::memory_order_release);
  return true;
}

std::atomic<uint64_t>* RegionTable::share(uint32_t stag, const rdmap::MemoryRegion& region,
                                          int file) {
  const FileId id = file >= 0 ? file_of(file) : FileId{};
  const uint32_t index = rdmap::index_of(stag);
  if ((file >= 0 && id == FileId{}) || index == 0 || index > kMostShared) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!open()) return nullptr;
  RegionEntry& entry = mapped_->entries[index - 1];
  if (!provide(entry)) return nullptr;
  // Who reads what follows sees that its serial was over before.
  std::atomic_thread_fence(std::memory_order_release);
  entry.stag = stag;
  entry.file = file >= 0 ? static_cast<uint32_t>(file) : kNoFile;
  entry.inode = id.inode;
  entry.base_to = region.buffer.base_to;
  entry.length = region.buffer.memory.size();
  entry.rights = region.rights.bits;
  entry.pd = region.pd;
  entry.qp = region.qp;
  entry.address = reinterpret_cast<uintptr_t>(region.buffer.memory.data());
  entry.serial.store(++last_serial_, std::memory_order_release);
  return &entry.serial;
}

template <typename T>
bool RegionTable::provide(const T& where) {
  static_assert(kPage % sizeof(T) == 0);
  auto* table = reinterpret_cast<uint8_t*>(mapped_);
  const auto page = static_cast<size_t>(reinterpret_cast<const uint8_t*>(&where) - table) / kPage;
  if (!provided_[page]) provided_[page] = populate(table + page * kPage, kPage);
  return provided_[page];
}

std::optional<RegionTablePlace> RegionTable::enter(const ConnectionEnd& own,
                                                   rdmap::StreamId stream) {
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < kMostRows; ++i) {
    RegionRow& row = mapped_->rows[i];
    if (row.cookie.load(std::memory_order_relaxed) != 0) continue;
    if (!provide(row)) return std::nullopt;
    row.netns = own.socket.netns;
    row.pd = stream.pd;
    row.qp = stream.qp;
    row.is_connected_end = own.is_connected_end ? 1 : 0;
    row.cookie.store(own.socket.cookie, std::memory_order_release);
    return RegionTablePlace{descriptor_.load(std::memory_order_relaxed), i};
  }
  return std::nullopt;
}

void RegionTable::leave(const RegionTablePlace& place) {
  const std::lock_guard lock(mutex_);
  mapped_->rows[place.row].cookie.store(0, std::memory_order_release);
}

}  // namespace ddpsock::engine::shm
