// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving: what is in the buffer, to the program, until it has what it wants.
#include "stream/receiver.h"

#include <errno.h>
#include <poll.h>

#include <utility>

#include "stream/failure.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/memory_start.h"
#include "stream/receiver_pull.h"
#include "stream/rx.h"
#include "stream/scan.h"
#include "stream/turning.h"

namespace ddpsock::engine {

namespace {

// FPDUs without payload are read a few at a time, as it happens; of more, all that are there.
constexpr uint32_t kMostEmpty = 64;

}  // namespace

ChunkReceiver::ChunkReceiver(Connection& c, int fd, IoCursor& to, int flags, size_t got)
    : call_{.c = c, .fd = {c, fd}, .to = to, .flags = flags, .got = got} {
  // A call that lost its descriptor has left the byte that goes with the last it delivered.
  if (c.inbox.left == 0) call_.must_drop = std::exchange(c.inbox.has_kept_byte, false);
}

Io ChunkReceiver::run() {
  for (;;) {
    deliver();
    call_.look_for_border();
    // What was read beyond it is taken for what it is.
    const bool is_full = call_.to.left() == 0;
    if (call_.is_near_border && (!is_full || !call_.buffer.is_empty()) &&
        (call_.c.is_beyond_next() || is_at_memory(call_.c))) {
      is_at_border_ = true;
      break;
    }
    if (is_full) break;
    const Front front = look();
    if (front == Front::kVerified) continue;
    if (front == Front::kFailed) break;
    if (has_enough()) {
      if (call_.got == 0) call_.error = EAGAIN;
      break;
    }
    if (empty_ > kMostEmpty && !call_.must_drop) [[unlikely]] {
      if (!outlive_flood()) break;
      continue;
    }
    // Near the border a read asks for so little that it may find all of that, and the kernel no
    // more.
    if ((call_.is_drained || call_.is_near_border || call_.got > 0) && !may_sleep_again()) break;
    const ssize_t n = call_.is_near_border ? pull_no_further(call_) : pull(call_);
    if (n > 0) continue;
    if (n < 0 && call_.error == 0) call_.error = errno;
    // The rest of an FPDU never comes, and is no second reason.
    if (is_told_once(call_.error)) call_.buffer.drop(call_.buffer.size());
    if (n == 0) on_end();
    break;
  }
  return finish();
}

// The kernel was empty at the last read, and there is something to return.
bool ChunkReceiver::has_enough() const {
  if (!call_.is_drained || call_.must_drop) return false;
  if ((call_.flags & MSG_DONTWAIT) != 0) return true;
  return !call_.wants_more();
}

// The kernel had no more perhaps, and the call has not what it wants. Like TCP's, it ends
// SO_RCVTIMEO after it began to wait, however often it was woken for nothing.
bool ChunkReceiver::may_sleep_again() {
  if ((call_.flags & MSG_DONTWAIT) != 0 || call_.rx.queued > 0 || !call_.wants_more()) return true;
  patience_.follow(call_.fd);
  const std::optional<Time> until = patience_.before_read(call_.got > 0);
  if (!until) return true;
  if (!call_.prepare_to_sleep()) return false;
  call_.error = wait_ready(call_.fd, POLLIN, *until);
  call_.wake_up();
  return call_.error == 0;
}

// A peer can send FPDUs that nobody is told of as fast as they are read. A call that must not wait
// ends once it has taken all that lay there when it began to count: the kernel tells of what came
// since by an edge of its own.
bool ChunkReceiver::outlive_flood() {
  empty_ = 0;
  if (has_dropped_) {
    const bool may_wait =
        (call_.flags & MSG_DONTWAIT) == 0 && call_.wants_more() && !is_nonblocking(call_.fd);
    patience_.follow(call_.fd);
    if (!may_wait || patience_.is_over()) {
      if (call_.got == 0) call_.error = EAGAIN;
      return false;
    }
  }
  has_dropped_ = true;
  if (!call_.buffer.leave_stack()) return call_.fail_for_memory();
  call_.buffer.put_on_record();
  const uint32_t before = call_.inbox.beg;
  call_.error = Scan(call_.c, call_.fd, 0).drop_empty();
  call_.buffer.drop(call_.inbox.beg - before);
  return call_.error == 0;
}

void ChunkReceiver::deliver() {
  Inbox& inbox = call_.inbox;
  if (inbox.left == 0) return;
  const auto n = static_cast<uint32_t>(std::min<size_t>(inbox.left, call_.to.left()));
  put(call_.buffer.bytes().data(), n);
  call_.buffer.drop(n);
  inbox.left -= n;
  if (inbox.left > 0) return;
  call_.buffer.drop(inbox.skip);
  call_.must_drop = inbox.has_kept_byte;
  inbox.has_kept_byte = false;
}

void ChunkReceiver::put(const uint8_t* from, uint32_t n) {
  if ((call_.flags & MSG_TRUNC) != 0) {
    call_.to.skip(n);
  } else {
    call_.to.put(from, n);
    call_.c.r.received.bytes_copied.add(n);
  }
  call_.got += n;
}

ChunkReceiver::Front ChunkReceiver::look() {
  ReceiveBuffer& buffer = call_.buffer;
  for (;;) {
    if (buffer.size() < kChunkHeader) return Front::kIncomplete;
    const Fpdu fpdu = call_.front();
    if (fpdu.is(Fpdu::Verdict::kPartial)) return Front::kIncomplete;
    if (!fpdu.is_of_stream) {
      call_.error =
          take_control(call_.c, call_.fd, buffer.bytes().first(std::min(buffer.size(), fpdu.size)));
      if (call_.error == EPROTOTYPE) {
        // What was read with the marker is plain.
        buffer.drop(fpdu.size);
        call_.inbox.left = buffer.size();
        call_.inbox.skip = 0;
      }
      if (call_.error != 0) return Front::kFailed;
      buffer.drop(fpdu.size);
      ++empty_;
      continue;
    }
    if (!call_.is_good(fpdu)) return Front::kFailed;
    call_.accept(fpdu);
    if (fpdu.payload > 0) return Front::kVerified;
    buffer.drop(call_.inbox.skip);
    ++empty_;
    // Other bytes may lie between this FPDU and the next.
    if (call_.is_near_border) return Front::kVerified;
  }
}

void ChunkReceiver::on_end() {
  if (call_.buffer.is_empty() || !has_peer_ended(call_.fd)) return;
  call_.error = fail_cut(call_.c, call_.fd);
  if (call_.error == 0) call_.buffer.drop(call_.buffer.size());
}

// Programs take what FIONREAD told as all there is, and then wait for an edge. Part of an FPDU that
// lay behind it must not be left where it may keep the kernel from taking the rest.
void ChunkReceiver::settle_count() {
  ReceiveCount& count = call_.rx.count;
  count.take_payload(call_.got);
  if (is_at_border_ || (call_.error != 0 && call_.error != EAGAIN)) {
    count.forget();
  } else if (count.payload == 0 && count.queue > 0 && call_.inbox.left == 0) {
    take_partial(call_.c, call_.fd);
  }
}

Io ChunkReceiver::finish() {
  Inbox& inbox = call_.inbox;
  ReceiveBuffer& buffer = call_.buffer;
  if (call_.fd.is_copy()) [[unlikely]]
    return call_.got > 0 ? Io::ok(static_cast<ssize_t>(call_.got)) : Io::fail(EINTR);
  if (call_.must_drop && call_.fd < 0) {
    inbox.has_kept_byte = true;
  } else if (call_.must_drop && call_.error == 0 && drop_kept_byte(call_) <= 0) {
    call_.error = fail_lost(call_.c, call_.fd, "a byte known to be queued is gone");
  }
  if (call_.c.is_state(StreamState::kFailed)) {
    buffer.clear();
    inbox.left = 0;
  }
  if (buffer.is_empty() && inbox.left == 0) {
    buffer.free();
  } else if (!buffer.leave_stack()) {
    call_.fail_for_memory();
    buffer.clear();
  }
  buffer.put_on_record();
  if (call_.rx.count.is_known()) [[unlikely]]
    settle_count();
  if (call_.error == EPROTOTYPE) [[unlikely]]
    return recv_turned(call_.c, call_.fd, call_.to, call_.flags, call_.got, patience_);
  if (call_.got > 0) {
    // The kernel reports an error once; it must not be lost behind the bytes that came before it.
    const int error = call_.error;
    if (error != 0 && error != EAGAIN && error != EINTR && error != EBADF) call_.rx.error = error;
    return Io::ok(static_cast<ssize_t>(call_.got));
  }
  if (call_.error != 0) return Io::fail(call_.error);
  return is_at_border() ? Io::ok(0) : end_of_stream(call_.c);
}

}  // namespace ddpsock::engine
