// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_RELATIVES_INBOX_H_
#define DDPSOCK_RELATIVES_INBOX_H_

#include "base/bytes.h"
#include "relatives/block_chain.h"
#include "relatives/blocks.h"

namespace ddpsock::engine {

// Bytes of one stream that were taken from where they came and not delivered, in the order in which
// recv() delivers: `ready`; the payload in front of the buffer; what FPDUs the rest of the buffer
// and the wire hold, and among those, in front of FPDU `beyond_fpdu`, `beyond`. Plain data of a
// record, under the receive lease.
struct Inbox {
  // Of the wire: [beg, end) of `block`, or of the caller's stack while a call runs.
  uint32_t block = Blocks::kNoBlock;
  uint32_t beg = 0, end = 0;
  uint32_t left = 0;           // payload of the verified FPDU in front that is not delivered yet
  uint32_t skip = 0;           // its pad and CRC bytes in the buffer after that
  bool has_kept_byte = false;  // the last CRC byte of the FPDU in front is still in the kernel (I1)

  // Bytes of the stream, in front of all others.
  BlockChain ready;
  // What lay in the peer's lane when this process's family left it. On the wire so many octets lie
  // in its place.
  BlockChain beyond;
  uint32_t beyond_fpdu = 0, beyond_octets = 0;

  bool has_bytes() const { return left > 0 || !ready.is_empty() || !beyond.is_empty(); }
  // Is there anything but FPDUs between here and the end?
  bool has_beyond() const { return !beyond.is_empty() || beyond_octets > 0; }
  bool is_beyond_next(uint32_t msn, uint32_t mo) const {
    return has_beyond() && msn == beyond_fpdu && left == 0 && mo == 0;
  }
  // REQUIRES: is_beyond_next().
  void reach_beyond(Blocks& blocks) { ready.splice(blocks, beyond); }

  // The payload in front of the buffer, and the bytes of FPDUs behind it.
  Bytes front(Blocks& blocks) const;
  Bytes unparsed(Blocks& blocks) const;
  uint32_t buffered() const { return end - beg; }

  // The buffer, its bytes moved to its beginning; nullptr: no memory. REQUIRES: left == 0.
  uint8_t* buffer(Blocks& blocks);
  void free_buffer(Blocks& blocks);

  // So many of the octets in `beyond`'s place were in the buffer.
  void drop_buffered_octets();

  // kNoBlock: no memory is lent to it.
  uint32_t any_block() const {
    static_assert(Blocks::kNoBlock == 0, "numbers are ORed");
    return block | ready.first_block() | beyond.first_block();
  }
  bool is_mapped(Blocks& blocks) const;
  // Gives all of it up.
  void clear(Blocks& blocks);
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_INBOX_H_
