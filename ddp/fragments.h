// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which bytes of which messages have been placed when segments come out of order. Each message
// keeps the length of its gapless beginning (the prefix); what lies beyond a gap is kept here, for
// all messages of one queue together, in a list whose size was fixed when it was made.
#ifndef DDPSOCK_DDP_FRAGMENTS_H_
#define DDPSOCK_DDP_FRAGMENTS_H_

#include <cstdint>
#include <memory>

namespace ddpsock::ddp {

// Bytes [begin, end) of a message.
struct ByteRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

class Fragments {
 public:
  enum class Novelty : uint8_t {
    kNew,      // no byte of it was placed before
    kPartial,  // some were
    kKnown,    // all were (also: the range is empty)
  };

  // Room for `capacity` separate ranges; the one allocation. capacity() tells whether it succeeded.
  explicit Fragments(uint32_t capacity);

  uint32_t capacity() const { return capacity_; }
  uint32_t size() const { return size_; }

  Novelty novelty(uint32_t message, uint32_t prefix, ByteRange range) const;

  // Whether insert() of this range is sure to succeed.
  bool has_room_for(uint32_t prefix, ByteRange range) const {
    return range.begin <= prefix || size_ < capacity_;
  }

  // Notes `range` as placed and returns the message's new prefix.
  // REQUIRES: has_room_for(prefix, range).
  uint32_t insert(uint32_t message, uint32_t prefix, ByteRange range);

  // The highest `end` held for the message, or 0.
  uint32_t highest_end(uint32_t message) const;

  // Forgets what is held for the message.
  void forget(uint32_t message);

 private:
  struct Held {
    uint32_t message;
    ByteRange range;
  };
  void erase(uint32_t i) { held_[i] = held_[--size_]; }

  std::unique_ptr<Held[]> held_;
  uint32_t capacity_;
  uint32_t size_ = 0;
};

}  // namespace ddpsock::ddp

#endif  // DDPSOCK_DDP_FRAGMENTS_H_
