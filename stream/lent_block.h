// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_LENT_BLOCK_H_
#define DDPSOCK_STREAM_LENT_BLOCK_H_

#include "base/process.h"
#include "relatives/arena.h"

namespace ddpsock::engine {

// A block of the arena, lent for one call. In a child that a signal handler forked inside the call
// it is the parent's, who gives it back.
class LentBlock {
 public:
  LentBlock() = default;
  LentBlock(const LentBlock&) = delete;
  LentBlock& operator=(const LentBlock&) = delete;
  ~LentBlock() { give_back(); }

  bool is_taken() const { return block_ != Arena::kNoBlock; }
  // nullptr if there is none.
  uint8_t* take(Arena& arena) {
    arena_ = &arena;
    block_ = arena.allocate_block();
    return is_taken() ? arena.block_data(block_) : nullptr;
  }
  void give_back() {
    if (is_taken() && copies_ == base::thread_copies()) arena_->free_block(block_);
    block_ = Arena::kNoBlock;
  }

 private:
  Arena* arena_ = nullptr;
  uint32_t block_ = Arena::kNoBlock;
  const uint32_t copies_ = base::thread_copies();
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_LENT_BLOCK_H_
