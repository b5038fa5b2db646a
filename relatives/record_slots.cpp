// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/record_slots.h"

#include <sys/mman.h>

#include <algorithm>

#include "relatives/arena_file.h"
#include "relatives/arena_layout.h"

namespace ddpsock::engine {

RecordSlots::RecordSlots(const ArenaFile& file) : file_(file), shared_(file.head()) {
  if (!file.is_anonymous()) return;
  std::byte* first = reinterpret_cast<std::byte*>(&shared_) + kRecordsOffset;
  groups_[0] = reinterpret_cast<RecordGroup*>(first);
}

RecordGroup* RecordSlots::group(uint32_t index) {
  RecordGroup* known = groups_[index].load(std::memory_order_acquire);
  if (known != nullptr || file_.is_anonymous()) [[likely]]
    return known;
  const size_t size = whole_pages(sizeof(RecordGroup));
  auto* mapped = static_cast<RecordGroup*>(file_.map_part(record_group_offset(index), size));
  if (mapped == nullptr || groups_[index].compare_exchange_strong(known, mapped)) return mapped;
  munmap(mapped, size);
  return known;
}

RecordHead* RecordSlots::head(uint32_t i) {
  RecordGroup* g = group(i / kGroupRecords);
  return g != nullptr ? &g->heads[i % kGroupRecords] : nullptr;
}

void* RecordSlots::record(uint32_t i) {
  return group(i / kGroupRecords)->records[i % kGroupRecords].data();
}

bool RecordSlots::is_live(uint32_t i) {
  const RecordHead* h = head(i);
  return h != nullptr && h->is_live();
}

uint32_t RecordSlots::index_of(const void* record) const {
  const auto* at = static_cast<const std::byte*>(record);
  for (uint32_t g = 0; g < kRecordGroups; ++g) {
    const RecordGroup* records = groups_[g].load(std::memory_order_acquire);
    if (records == nullptr || at < records->records.front().data() ||
        at > records->records.back().data())
      continue;
    const auto offset = static_cast<size_t>(at - records->records.front().data());
    return g * kGroupRecords + static_cast<uint32_t>(offset / kRecordSize);
  }
  __builtin_unreachable();
}

uint32_t RecordSlots::count() const {
  return file_.is_anonymous() ? kGroupRecords : kMaxRecords;
}

uint32_t RecordSlots::live() const {
  return shared_.records_live.load(std::memory_order_relaxed);
}

uint32_t RecordSlots::rotation() const {
  return std::min(shared_.rotation.load(), count());
}

void RecordSlots::free(uint32_t i) {
  head(i)->free();
  // Last: who dies before it leaves one too many, not one that is counted off twice.
  shared_.records_live.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace ddpsock::engine
