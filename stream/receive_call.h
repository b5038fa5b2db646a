// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_RECEIVE_CALL_H_
#define DDPSOCK_STREAM_RECEIVE_CALL_H_

#include <sys/socket.h>

#include <algorithm>

#include "stream/connection.h"
#include "stream/descriptor.h"
#include "stream/io_cursor.h"
#include "stream/memory_start.h"
#include "stream/receive_buffer.h"
#include "stream/rx.h"

namespace ddpsock::engine {

// How far one recv call has come with FPDUs. receiver_pull.h takes them from the kernel,
// a large one straight to where it belongs; receiver.h delivers the others; both change this under
// the receive lease, which is held all the time. What it refers to is the caller's and stays.
struct ReceiveCall {
  // The FPDU at the front of the buffer.
  Fpdu front() const { return c.reader().look(buffer.bytes()); }
  bool wants_more() const {
    if (got == 0) return true;
    if ((flags & MSG_WAITALL) != 0) return true;
    return got < static_cast<size_t>(std::max(rx.low_water.load(), 1));
  }

  // False: it is damaged, the connection has ended and `error` is set. REQUIRES: the whole FPDU in
  // front is known, and of the stream.
  bool is_good(const Fpdu& fpdu);
  // What is behind it comes next.
  void count(const Fpdu& fpdu) {
    c.advance(fpdu);
    if (is_near_border) note_fpdu_read(c);
  }
  // The same, and its payload is to be delivered from the buffer. REQUIRES: is_good().
  void accept(const Fpdu& fpdu);
  // Memory may have been offered to the peer since this began, by a thread that sends.
  void look_for_border() {
    if (is_near_border || !is_near_memory(c)) return;
    is_near_border = true;
    note_fpdu_read(c);
  }

  // The process may be killed in its sleep: what the record says is then what is so, and a relative
  // goes on from there. False: `error` is set, and the call must not sleep.
  bool prepare_to_sleep();
  // Behind that sleep: `error` is set where the call must not go on. `has_taken`: it has taken from
  // the kernel what is not in the record yet.
  void wake_up(bool has_taken = false);
  // Ends the connection, for there is no memory for what was received, and sets `error`. False.
  bool fail_for_memory();

  Connection& c;
  Descriptor fd;
  IoCursor& to;
  const int flags;
  size_t got;  // bytes delivered, also of stages before this
  Rx& rx = c.rx;
  Inbox& inbox = c.inbox;
  bool is_near_border = is_near_memory(c);  // nothing beyond the FPDU in front may be read
  bool must_drop = false;                   // the kept byte of an FPDU that is delivered to its end
  bool is_drained = false;                  // the last read took all that the kernel had
  int error = 0;
  ReceiveBuffer buffer{inbox, c.arena.blocks};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_RECEIVE_CALL_H_
