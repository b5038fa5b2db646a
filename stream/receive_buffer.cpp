// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/receive_buffer.h"

namespace ddpsock::engine {

bool ReceiveBuffer::make_room(uint32_t ask) {
  if (data_ == nullptr && ask <= kSmall) {
    data_ = small_;
    capacity_ = kSmall;
  }
  if (beg_ == end_) beg_ = end_ = 0;
  if (data_ != nullptr && capacity_ - end_ >= ask) return true;
  if (data_ == nullptr || data_ == small_) return move_to_block();
  std::memmove(data_, data_ + beg_, end_ - beg_);
  end_ -= beg_;
  beg_ = 0;
  return true;
}

bool ReceiveBuffer::move_to_block() {
  const uint32_t block = blocks_.allocate();
  if (block == Blocks::kNoBlock) return false;
  uint8_t* to = blocks_.data(block);
  if (end_ > beg_) std::memcpy(to, data_ + beg_, end_ - beg_);
  end_ -= beg_;
  beg_ = 0;
  data_ = to;
  capacity_ = Blocks::kBlockSize;
  inbox_.block = block;
  return true;
}

}  // namespace ddpsock::engine
