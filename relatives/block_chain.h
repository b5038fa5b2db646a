// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_BLOCK_CHAIN_H_
#define DDPSOCK_RELATIVES_BLOCK_CHAIN_H_

#include "base/bytes.h"
#include "relatives/blocks.h"

namespace ddpsock::engine {

// Bytes in the order they came, in a chain of the arena's blocks. Plain data of a record: whoever
// holds the lease that it is under changes it. Who is killed on the way leaks a block, but the
// chain names none that is another's by then.
class BlockChain {
 public:
  size_t size() const { return size_; }
  bool is_empty() const { return size_ == 0; }
  // kNoBlock: no memory is lent to it.
  uint32_t first_block() const { return first_; }
  // Can this process map all of it (RLIMIT_AS)? Everything below REQUIRES it.
  bool is_mapped(Blocks& blocks) const;

  // All of `bytes` or, where no memory can be had (false), nothing.
  bool append(Blocks& blocks, Bytes bytes);
  // Contiguous bytes, `skip` behind the first: at least one of those there are, at most `most`.
  Bytes at(Blocks& blocks, size_t skip, size_t most) const;
  // REQUIRES: n <= size(). The last block stays, for what comes next; clear() gives it back.
  void take(Blocks& blocks, size_t n);
  // All of `other` follows, which is empty then.
  void splice(Blocks& blocks, BlockChain& other);
  // Also where not all can be mapped: what follows leaks.
  void clear(Blocks& blocks);

 private:
  struct Link;
  static Link& link(Blocks& blocks, uint32_t block);
  bool extend(Blocks& blocks, size_t size);

  uint32_t first_ = Blocks::kNoBlock, last_ = Blocks::kNoBlock;
  uint32_t size_ = 0;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_BLOCK_CHAIN_H_
