// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_RECEIVE_BUFFER_H_
#define DDPSOCK_STREAM_RECEIVE_BUFFER_H_

#include "relatives/inbox.h"
#include "stream/chunk.h"

namespace ddpsock::engine {

// Bytes of FPDUs between the kernel and the program, while a receive call runs: a few lie on the
// caller's stack, more in the inbox's block. The inbox has its block at once, and is
// told which part of that has bytes by put_on_record() only; a relative of a process that is killed
// goes on from there. REQUIRES: the receive lease, for as long as this lives; that nobody else
// moves the inbox's block.
class ReceiveBuffer {
 public:
  // What the stack has room for: a chunk of 4 KB, behind a byte that was kept.
  static constexpr uint32_t kSmall = 4096 + kChunkHeader + kMaxTrailer + 1;

  // Goes on with what the inbox has in its block. Both outlive this.
  ReceiveBuffer(Inbox& inbox, Blocks& blocks) : inbox_(inbox), blocks_(blocks) {
    if (inbox_.block == Blocks::kNoBlock) return;
    data_ = blocks_.data(inbox_.block);
    capacity_ = Blocks::kBlockSize;
    beg_ = inbox_.beg;
    end_ = inbox_.end;
  }
  ReceiveBuffer(const ReceiveBuffer&) = delete;
  ReceiveBuffer& operator=(const ReceiveBuffer&) = delete;

  // What is in it, until a call below that is not const.
  Bytes bytes() const { return {data_ + beg_, end_ - beg_}; }
  uint32_t size() const { return end_ - beg_; }
  bool is_empty() const { return beg_ == end_; }
  // So many of them, from the front, are done with.
  void drop(uint32_t n) { beg_ += n; }
  void clear() { beg_ = end_ = 0; }

  // Where the next go, and that so many have been written there.
  MutBytes room() const { return {data_ + end_, capacity_ - end_}; }
  void add(uint32_t n) { end_ += n; }
  // At least one byte of room, and `ask` if a buffer can have it. False: no memory, and nothing has
  // changed.
  [[nodiscard]] bool make_room(uint32_t ask);

  // The bytes will outlast the call. False: no memory, and nothing has changed.
  [[nodiscard]] bool leave_stack() { return data_ != small_ || is_empty() || move_to_block(); }
  // The record says from now on what is here. REQUIRES: leave_stack().
  void put_on_record() {
    inbox_.beg = beg_;
    inbox_.end = end_;
  }
  // Gives the block back. REQUIRES: is_empty(), and that nothing but put_on_record() follows.
  void free() { inbox_.free_buffer(blocks_); }

 private:
  bool move_to_block();

  Inbox& inbox_;
  Blocks& blocks_;
  uint8_t* data_ = nullptr;  // small_, or the block's; nullptr: neither is needed yet
  uint32_t capacity_ = 0, beg_ = 0, end_ = 0;
  uint8_t small_[kSmall];
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_RECEIVE_BUFFER_H_
