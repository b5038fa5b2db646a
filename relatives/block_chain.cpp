// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/block_chain.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace ddpsock::engine {

// At the beginning of a block. Its bytes are [beg, end) of the block.
struct BlockChain::Link {
  uint32_t next;
  uint32_t beg, end;
};

namespace {

// Payload is aligned as the block is.
constexpr uint32_t kDataAt = 64;

}  // namespace

BlockChain::Link& BlockChain::link(Arena& arena, uint32_t block) {
  static_assert(sizeof(Link) <= kDataAt);
  return *reinterpret_cast<Link*>(arena.block_data(block));
}

bool BlockChain::is_mapped(Arena& arena) const {
  for (uint32_t block = first_; block != Arena::kNoBlock; block = link(arena, block).next)
    if (arena.block_data(block) == nullptr) return false;
  return true;
}

// Room for `size` bytes behind the last block, in blocks that are empty.
bool BlockChain::extend(Arena& arena, size_t size) {
  BlockChain more;
  for (size_t room = 0; room < size; room += Arena::kBlockSize - kDataAt) {
    const uint32_t block = arena.allocate_block();
    if (block == Arena::kNoBlock) {
      more.clear(arena);
      return false;
    }
    link(arena, block) = {more.first_, kDataAt, kDataAt};
    more.first_ = block;
    if (more.last_ == Arena::kNoBlock) more.last_ = block;
  }
  splice(arena, more);
  return true;
}

bool BlockChain::append(Arena& arena, Bytes bytes) {
  uint32_t block = last_;
  const size_t room = block != Arena::kNoBlock ? Arena::kBlockSize - link(arena, block).end : 0;
  if (bytes.size() > room && !extend(arena, bytes.size() - room)) return false;
  if (block == Arena::kNoBlock) block = first_;
  while (!bytes.empty()) {
    Link& at = link(arena, block);
    const size_t n = std::min<size_t>(bytes.size(), Arena::kBlockSize - at.end);
    std::memcpy(arena.block_data(block) + at.end, bytes.data(), n);
    at.end += static_cast<uint32_t>(n);
    size_ += static_cast<uint32_t>(n);
    last_ = block;
    bytes = bytes.subspan(n);
    block = at.next;
  }
  return true;
}

Bytes BlockChain::at(Arena& arena, size_t skip, size_t most) const {
  for (uint32_t block = first_; block != Arena::kNoBlock;) {
    const Link& at = link(arena, block);
    const size_t size = at.end - at.beg;
    if (skip < size) return {arena.block_data(block) + at.beg + skip, std::min(most, size - skip)};
    skip -= size;
    block = at.next;
  }
  return {};
}

void BlockChain::take(Arena& arena, size_t n) {
  if (n == 0) return;
  size_ -= static_cast<uint32_t>(n);
  for (;;) {
    const uint32_t block = first_;
    Link& at = link(arena, block);
    const size_t part = std::min<size_t>(n, at.end - at.beg);
    at.beg += static_cast<uint32_t>(part);
    n -= part;
    if (at.beg < at.end) return;
    if (block == last_) {
      at.beg = at.end = kDataAt;
      return;
    }
    first_ = at.next;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    arena.free_block(block);
  }
}

void BlockChain::splice(Arena& arena, BlockChain& other) {
  if (other.first_ == Arena::kNoBlock) return;
  const BlockChain more = std::exchange(other, {});
  // No instruction between those at which both own them.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  (last_ != Arena::kNoBlock ? link(arena, last_).next : first_) = more.first_;
  last_ = more.last_;
  size_ += more.size_;
}

void BlockChain::clear(Arena& arena) {
  size_ = 0;
  last_ = Arena::kNoBlock;
  while (first_ != Arena::kNoBlock) {
    const uint32_t block = first_;
    first_ = arena.block_data(block) != nullptr ? link(arena, block).next : Arena::kNoBlock;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    arena.free_block(block);
  }
}

}  // namespace ddpsock::engine
