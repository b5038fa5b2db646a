// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_LENT_BLOCK_H_
#define DDPSOCK_STREAM_LENT_BLOCK_H_

#include "base/process.h"
#include "relatives/blocks.h"

namespace ddpsock::engine {

// A block of the arena, lent for one call. In a child that a signal handler forked inside the call
// it is the parent's, who gives it back.
class LentBlock {
 public:
  LentBlock() = default;
  LentBlock(const LentBlock&) = delete;
  LentBlock& operator=(const LentBlock&) = delete;
  ~LentBlock() { give_back(); }

  bool is_taken() const { return block_ != Blocks::kNoBlock; }
  // nullptr if there is none.
  uint8_t* take(Blocks& blocks) {
    blocks_ = &blocks;
    block_ = blocks.allocate();
    return is_taken() ? blocks.data(block_) : nullptr;
  }
  void give_back() {
    if (is_taken() && copies_ == base::thread_copies()) blocks_->free(block_);
    block_ = Blocks::kNoBlock;
  }

 private:
  Blocks* blocks_ = nullptr;
  uint32_t block_ = Blocks::kNoBlock;
  const uint32_t copies_ = base::thread_copies();
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_LENT_BLOCK_H_
