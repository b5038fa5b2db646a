// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/blocks.h"

#include <sys/mman.h>

#include "relatives/arena_file.h"
#include "relatives/arena_layout.h"

namespace ddpsock::engine {
namespace {

// Free blocks above this index give their pages back to the kernel, but for those freed last.
constexpr uint32_t kKeptBlocks = 64;

}  // namespace

Blocks::Blocks(const ArenaFile& file)
    : file_(file),
      shared_(file.head()),
      count_(file.is_anonymous() ? kAnonymousBlocks : kMaxBlocks) {
  if (!file.is_anonymous()) return;
  uint8_t* first = reinterpret_cast<uint8_t*>(&shared_) + kAnonymousBlocksOffset;
  for (uint32_t i = 0; i < kAnonymousBlocks / kGroupBlocks; ++i)
    groups_[i] = first + i * kBlockGroupSize;
}

uint8_t* Blocks::data(uint32_t block) {
  const uint32_t i = block - 1;
  std::atomic<uint8_t*>& place = groups_[i / kGroupBlocks];
  uint8_t* known = place.load(std::memory_order_acquire);
  if (known == nullptr) [[unlikely]] {
    auto* mapped = static_cast<uint8_t*>(
        file_.map_part(block_group_offset(i / kGroupBlocks), kBlockGroupSize));
    if (mapped == nullptr) return nullptr;
    if (place.compare_exchange_strong(known, mapped)) {
      known = mapped;
    } else {
      munmap(mapped, kBlockGroupSize);
    }
  }
  return known + size_t{i % kGroupBlocks} * kBlockSize;
}

uint32_t Blocks::allocate() {
  // The block freed last is the one still in the cache.
  const uint32_t hint = shared_.block_hint.load(std::memory_order_relaxed) % count_;
  bool may_map = true;
  for (uint32_t tries = 0; tries < count_; ++tries) {
    const uint32_t i = tries == 0 ? hint : tries - 1;
    uint8_t is_free = 0;
    if (shared_.block_used[i].load(std::memory_order_relaxed) != 0 ||
        (!may_map && groups_[i / kGroupBlocks].load() == nullptr) ||
        !shared_.block_used[i].compare_exchange_strong(is_free, 1, std::memory_order_acquire))
      continue;
    if (data(i + 1) == nullptr) {
      shared_.block_used[i].store(0, std::memory_order_release);
      may_map = false;
      continue;
    }
    if (tries != 0) shared_.block_hint.store(i + 1, std::memory_order_relaxed);
    return i + 1;
  }
  return kNoBlock;
}

void Blocks::free(uint32_t block) {
  const uint32_t i = block - 1;
  shared_.block_hint.store(i, std::memory_order_relaxed);
  shared_.block_used[i].store(0, std::memory_order_release);
  if (i >= kKeptBlocks) keep_freed(block);
}

// A sender takes the same few for every burst: in place of one that is not among those freed last
// the one that has been there longest gives its pages back. Best effort: where another call is at
// that too they stay until the block is used again.
void Blocks::keep_freed(uint32_t block) {
  for (const std::atomic<uint32_t>& known : shared_.freed_last)
    if (known.load(std::memory_order_relaxed) == block) return;
  const uint32_t turn = shared_.freed_cursor.fetch_add(1, std::memory_order_relaxed);
  std::atomic<uint32_t>& place = shared_.freed_last[turn % shared_.freed_last.size()];
  const uint32_t oldest = place.exchange(block, std::memory_order_relaxed);
  uint8_t is_free = 0;
  if (oldest == kNoBlock || !shared_.block_used[oldest - 1].compare_exchange_strong(
                                is_free, 1, std::memory_order_acquire))
    return;
  if (uint8_t* bytes = data(oldest); bytes != nullptr) madvise(bytes, kBlockSize, MADV_REMOVE);
  shared_.block_used[oldest - 1].store(0, std::memory_order_release);
}

}  // namespace ddpsock::engine
