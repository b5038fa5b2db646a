// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/memory/region_table.h"

#include <sys/mman.h>

#include "base/random.h"

namespace ddpsock::engine::shm {

RegionTable::~RegionTable() {
  if (mapped_ != nullptr) munmap(mapped_, kRegionTableSize);
}

bool RegionTable::open() {
  if (mapped_ != nullptr) return true;
  uint64_t secret = 0;
  if (!base::fill_random({reinterpret_cast<uint8_t*>(&secret), sizeof secret})) return false;
  auto made = make_mapped_file(kRegionTableName, kRegionTableSize, true);
  // Number 0 means none, and a program may well have closed its own.
  if (!made || made->file.get() == 0) return false;
  mapped_ = reinterpret_cast<RegionTableFile*>(made->at);
  file_ = std::move(made->file);
  madvise(mapped_, kRegionTableSize, MADV_DONTFORK);
  mapped_->secret = secret;
  number_.store(static_cast<uint32_t>(file_.get()), std::memory_order_release);
  return true;
}

std::atomic<uint64_t>* RegionTable::share(uint32_t stag, const rdmap::MemoryRegion& region,
                                          int file) {
  const FileId id = file_of(file);
  const uint32_t index = rdmap::index_of(stag);
  if (id == FileId{} || index >= kMostShared) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!open()) return nullptr;
  RegionEntry& entry = mapped_->entries[index];
  // A whole page at a time: its memory must be there before it is written.
  const auto page = reinterpret_cast<uintptr_t>(&entry) / kPage * kPage;
  if (!populate(reinterpret_cast<void*>(page), kPage)) return nullptr;
  entry.stag = stag;
  entry.file = static_cast<uint32_t>(file);
  entry.inode = id.inode;
  entry.base_to = region.buffer.base_to;
  entry.length = region.buffer.memory.size();
  entry.rights = region.rights.bits;
  entry.pd = region.pd;
  entry.qp = region.qp;
  entry.serial.store(++last_serial_, std::memory_order_release);
  return &entry.serial;
}

RegionTablePlace RegionTable::place() const {
  const uint32_t number = number_.load(std::memory_order_acquire);
  return number != 0 ? RegionTablePlace{number, mapped_->secret} : RegionTablePlace{};
}

}  // namespace ddpsock::engine::shm
