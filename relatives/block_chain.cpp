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

BlockChain::Link& BlockChain::link(Blocks& blocks, uint32_t block) {
  static_assert(sizeof(Link) <= kDataAt);
  return *reinterpret_cast<Link*>(blocks.data(block));
}

bool BlockChain::is_mapped(Blocks& blocks) const {
  for (uint32_t block = first_; block != Blocks::kNoBlock; block = link(blocks, block).next)
    if (blocks.data(block) == nullptr) return false;
  return true;
}

// Room for `size` bytes behind the last block, in blocks that are empty.
bool BlockChain::extend(Blocks& blocks, size_t size) {
  BlockChain more;
  for (size_t room = 0; room < size; room += Blocks::kBlockSize - kDataAt) {
    const uint32_t block = blocks.allocate();
    if (block == Blocks::kNoBlock) {
      more.clear(blocks);
      return false;
    }
    link(blocks, block) = {more.first_, kDataAt, kDataAt};
    more.first_ = block;
    if (more.last_ == Blocks::kNoBlock) more.last_ = block;
  }
  splice(blocks, more);
  return true;
}

bool BlockChain::append(Blocks& blocks, Bytes bytes) {
  uint32_t block = last_;
  const size_t room = block != Blocks::kNoBlock ? Blocks::kBlockSize - link(blocks, block).end : 0;
  if (bytes.size() > room && !extend(blocks, bytes.size() - room)) return false;
  if (block == Blocks::kNoBlock) block = first_;
  while (!bytes.empty()) {
    Link& at = link(blocks, block);
    const size_t n = std::min<size_t>(bytes.size(), Blocks::kBlockSize - at.end);
    std::memcpy(blocks.data(block) + at.end, bytes.data(), n);
    at.end += static_cast<uint32_t>(n);
    size_ += static_cast<uint32_t>(n);
    last_ = block;
    bytes = bytes.subspan(n);
    block = at.next;
  }
  return true;
}

Bytes BlockChain::at(Blocks& blocks, size_t skip, size_t most) const {
  for (uint32_t block = first_; block != Blocks::kNoBlock;) {
    const Link& at = link(blocks, block);
    const size_t size = at.end - at.beg;
    if (skip < size) return {blocks.data(block) + at.beg + skip, std::min(most, size - skip)};
    skip -= size;
    block = at.next;
  }
  return {};
}

void BlockChain::take(Blocks& blocks, size_t n) {
  if (n == 0) return;
  size_ -= static_cast<uint32_t>(n);
  for (;;) {
    const uint32_t block = first_;
    Link& at = link(blocks, block);
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
    blocks.free(block);
  }
}

void BlockChain::splice(Blocks& blocks, BlockChain& other) {
  if (other.first_ == Blocks::kNoBlock) return;
  const BlockChain more = std::exchange(other, {});
  // No instruction between those at which both own them.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  (last_ != Blocks::kNoBlock ? link(blocks, last_).next : first_) = more.first_;
  last_ = more.last_;
  size_ += more.size_;
}

void BlockChain::clear(Blocks& blocks) {
  size_ = 0;
  last_ = Blocks::kNoBlock;
  while (first_ != Blocks::kNoBlock) {
    const uint32_t block = first_;
    first_ = blocks.data(block) != nullptr ? link(blocks, block).next : Blocks::kNoBlock;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    blocks.free(block);
  }
}

}  // namespace ddpsock::engine
