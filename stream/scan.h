// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_SCAN_H_
#define DDPSOCK_STREAM_SCAN_H_

#include <optional>

#include "stream/connection.h"
#include "stream/descriptor.h"
#include "stream/io_cursor.h"
#include "stream/lent_block.h"
#include "stream/raw_message.h"

namespace ddpsock::engine {

// Looks at what could be delivered without delivering it: for MSG_PEEK, FIONREAD and pollers. Reads
// the kernel's queue by MSG_PEEK into a borrowed block. REQUIRES: the receive lease is held.
class Scan {
 public:
  // Sees at least the next `payload` bytes of the stream, within kMostBytes, in one look.
  Scan(Connection& c, int fd, size_t payload);
  ~Scan();
  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;

  // What lies in the kernel and the buffer now, seen by one look.
  struct Found {
    size_t payload = 0;      // deliverable bytes, copied or counted
    bool has_ended = false;  // nothing deliverable, and the peer's stream is over
    int error = 0;           // nothing deliverable, and the kernel or the stream has this to report
    size_t queued = 0;       // unread bytes of the kernel that were seen
    bool has_empty = false;  // FPDUs were seen that nobody is told of
    bool has_control = false;         // and the first is not even of the stream
    bool has_message = false;         // of the way back to plain TCP, behind payload
    bool has_reached_border = false;  // what lies in memory comes next, and was looked at
    bool has_partial = false;         // an incomplete FPDU lies in the kernel
    bool has_more = false;            // than one look sees
  };
  // Copies deliverable payload into `to`, or only counts it as MSG_TRUNC does, verifying each FPDU
  // it takes from. Without `to` all of it is counted.
  Found look(IoCursor* to, bool is_truncating = false);
  // The same until `wanted` bytes are found: it looks no further than the FPDU that brings them.
  Found look_for(size_t wanted, IoCursor* to = nullptr, bool is_truncating = false);
  // Waits until the kernel has something to tell. Like recv(): 0, or EAGAIN after SO_RCVTIMEO or
  // `deadline`, EINTR, ...
  int wait_for_any(Time deadline);

  // Takes FPDUs that nobody is told of from the front of what is there when it is called. 0, or an
  // errno: one of them ended the connection. REQUIRES: no FPDU is delivered in part.
  int drop_empty();

 private:
  int drop_some(size_t& dropped);
  std::optional<RawMessage> message(Bytes bytes, const Fpdu& fpdu, uint32_t msn) const;
  static size_t take(Bytes bytes, IoCursor* to, bool is_truncating);

  static constexpr size_t kMostBytes = 8 << 20;

  Connection& c_;
  Descriptor fd_;
  LentBlock block_;
  uint8_t* data_ = nullptr;  // the block's, or a mapping of its own where a block is too small
  size_t capacity_ = Blocks::kBlockSize;
};

// Moves an incomplete FPDU from the kernel to the stream's buffer, so that the socket is not
// readable for its sake. 0 or an errno. REQUIRES: the receive lease; no FPDU is delivered in part.
int take_partial(Connection& c, int fd);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_SCAN_H_
