// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_BLOCKS_H_
#define DDPSOCK_RELATIVES_BLOCKS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddpsock::engine {

struct ArenaHead;
class ArenaFile;

// The blocks of the arena: lent to a record, or for a call, for bytes of a stream that have no
// other place. A block is free or not by one atomic word; who dies with one leaks it, unless a
// record names it. Any thread may call.
class Blocks {
 public:
  static constexpr size_t kBlockSize = 136 * 1024;  // largest FPDU and a full read behind it
  static constexpr uint32_t kNoBlock = 0;
  static constexpr uint32_t kGroupBlocks = 16, kBlockGroups = 4096;
  static constexpr uint32_t kMaxBlocks = kGroupBlocks * kBlockGroups;
  // Without a file all must be mapped before the first fork.
  static constexpr uint32_t kAnonymousBlocks = 256;

  explicit Blocks(const ArenaFile& file);

  // A block, never kNoBlock, or kNoBlock when there is none. Contents are arbitrary.
  uint32_t allocate();
  // Beyond the first few, and those freed last, its pages go back to the kernel.
  void free(uint32_t block);
  // nullptr: this process may not map it (RLIMIT_AS). Never so where it has allocated the block.
  uint8_t* data(uint32_t block);

 private:
  void keep_freed(uint32_t block);

  const ArenaFile& file_;
  ArenaHead& shared_;
  const uint32_t count_;
  // Each where this process has mapped it.
  std::array<std::atomic<uint8_t*>, kBlockGroups> groups_{};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_BLOCKS_H_
