// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving. One call reads from the kernel at most what it can deliver and one frame's overhead,
// so that in the common case one system call brings one message and nothing is left over; what is
// left over is covered by a byte that stays in the kernel (doc/design.md decision 3, I1).
#include "stream/receiver.h"

#include <errno.h>
#include <poll.h>

#include <utility>

#include "stream/failure.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/memory_start.h"
#include "stream/rx.h"
#include "stream/scan.h"
#include "stream/turning.h"
#include "stream/watching.h"

namespace ddpsock::engine {

namespace {

// FPDUs without payload are read a few at a time, as it happens; of more, all that are there.
constexpr uint32_t kMostEmpty = 64;

}  // namespace

ChunkReceiver::ChunkReceiver(Connection& c, int fd, IoCursor& to, int flags, size_t got)
    : c_(c),
      rx_(c.rx),
      inbox_(c.inbox),
      fd_(c, fd),
      to_(to),
      flags_(flags),
      is_near_border_(is_near_memory(c)),
      got_(got) {
  // A call that lost its descriptor has left the byte that goes with the last it delivered.
  if (inbox_.left == 0) must_drop_ = std::exchange(inbox_.has_kept_byte, false);
}

Io ChunkReceiver::run() {
  for (;;) {
    deliver();
    look_for_border();
    // What was read beyond it is taken for what it is.
    const bool is_full = to_.left() == 0;
    if (is_near_border_ && (!is_full || !buffer_.is_empty()) &&
        (c_.is_beyond_next() || is_at_memory(c_))) {
      is_at_border_ = true;
      break;
    }
    if (is_full) break;
    const Front front = look();
    if (front == Front::kVerified) continue;
    if (front == Front::kFailed) break;
    if (has_enough()) {
      if (got_ == 0) error_ = EAGAIN;
      break;
    }
    if (empty_ > kMostEmpty && !must_drop_) [[unlikely]] {
      if (!outlive_flood()) break;
      continue;
    }
    // Near the border a read asks for so little that it may find all of that, and the kernel no
    // more.
    if ((is_drained_ || is_near_border_ || got_ > 0) && !may_sleep_again()) break;
    const ssize_t n = is_near_border_ ? pull_no_further() : pull();
    if (n > 0) continue;
    if (n < 0 && error_ == 0) error_ = errno;
    // The rest of an FPDU never comes, and is no second reason.
    if (is_told_once(error_)) buffer_.drop(buffer_.size());
    if (n == 0) on_end();
    break;
  }
  return finish();
}

// The kernel was empty at the last read, and there is something to return.
bool ChunkReceiver::has_enough() const {
  if (!is_drained_ || must_drop_) return false;
  if ((flags_ & MSG_DONTWAIT) != 0) return true;
  return !wants_more();
}

// The kernel had no more perhaps, and the call has not what it wants. Like TCP's, it ends
// SO_RCVTIMEO after it began to wait, however often it was woken for nothing.
bool ChunkReceiver::may_sleep_again() {
  if ((flags_ & MSG_DONTWAIT) != 0 || rx_.queued > 0 || !wants_more()) return true;
  const std::optional<Time> until = patience_.before_read(got_ > 0);
  if (!until) return true;
  if (!prepare_to_sleep()) return false;
  error_ = wait_ready(fd_, POLLIN, *until);
  wake_up();
  return error_ == 0;
}

// A peer can send FPDUs that nobody is told of as fast as they are read. A call that must not wait
// ends once it has taken all that lay there when it began to count: the kernel tells of what came
// since by an edge of its own.
bool ChunkReceiver::outlive_flood() {
  empty_ = 0;
  if (has_dropped_) {
    const bool may_wait = (flags_ & MSG_DONTWAIT) == 0 && wants_more() && !is_nonblocking(fd_);
    if (!may_wait || patience_.is_over()) {
      if (got_ == 0) error_ = EAGAIN;
      return false;
    }
  }
  has_dropped_ = true;
  if (!buffer_.leave_stack()) return fail_for_memory();
  buffer_.put_on_record();
  const uint32_t before = inbox_.beg;
  error_ = Scan(c_, fd_, 0).drop_empty();
  buffer_.drop(inbox_.beg - before);
  return error_ == 0;
}

// Memory may have been offered to the peer since this began, by a thread that sends.
void ChunkReceiver::look_for_border() {
  if (is_near_border_ || !is_near_memory(c_)) return;
  is_near_border_ = true;
  note_fpdu_read(c_);
}

bool ChunkReceiver::wants_more() const {
  if (got_ == 0) return true;
  if ((flags_ & MSG_WAITALL) != 0) return true;
  return got_ < static_cast<size_t>(std::max(rx_.low_water.load(), 1));
}

void ChunkReceiver::deliver() {
  if (inbox_.left == 0) return;
  const auto n = static_cast<uint32_t>(std::min<size_t>(inbox_.left, to_.left()));
  put(buffer_.bytes().data(), n);
  buffer_.drop(n);
  inbox_.left -= n;
  if (inbox_.left > 0) return;
  buffer_.drop(inbox_.skip);
  must_drop_ = inbox_.has_kept_byte;
  inbox_.has_kept_byte = false;
}

void ChunkReceiver::put(const uint8_t* from, uint32_t n) {
  if ((flags_ & MSG_TRUNC) != 0) {
    to_.skip(n);
  } else {
    to_.put(from, n);
    c_.r.received.bytes_copied.add(n);
  }
  got_ += n;
}

ChunkReceiver::Front ChunkReceiver::look() {
  for (;;) {
    if (buffer_.size() < kChunkHeader) return Front::kIncomplete;
    const Fpdu fpdu = front();
    if (fpdu.is(Fpdu::Verdict::kPartial)) return Front::kIncomplete;
    if (!fpdu.is_of_stream) {
      error_ = take_control(c_, fd_, buffer_.bytes().first(std::min(buffer_.size(), fpdu.size)));
      if (error_ == EPROTOTYPE) {
        // What was read with the marker is plain.
        buffer_.drop(fpdu.size);
        inbox_.left = buffer_.size();
        inbox_.skip = 0;
      }
      if (error_ != 0) return Front::kFailed;
      buffer_.drop(fpdu.size);
      ++empty_;
      continue;
    }
    if (!is_good(fpdu)) return Front::kFailed;
    accept(fpdu);
    if (fpdu.payload > 0) return Front::kVerified;
    buffer_.drop(inbox_.skip);
    ++empty_;
    // Other bytes may lie between this FPDU and the next.
    if (is_near_border_) return Front::kVerified;
  }
}

// REQUIRES: the whole FPDU in front is in the buffer, and of the stream.
bool ChunkReceiver::is_good(const Fpdu& fpdu) {
  if (c_.r.has_crc) c_.count_crc();
  if (fpdu.is(Fpdu::Verdict::kChunk)) return true;
  if (is_watched()) tell_received(c_, {buffer_.bytes().data(), fpdu.size});
  error_ = fail_crc(c_, fd_);
  return false;
}

void ChunkReceiver::count(const Fpdu& fpdu) {
  c_.advance(fpdu);
  if (is_near_border_) note_fpdu_read(c_);
}

void ChunkReceiver::accept(const Fpdu& fpdu) {
  if (is_watched()) [[unlikely]]
    tell_received(c_, {buffer_.bytes().data(), fpdu.size});
  count(fpdu);
  inbox_.left = fpdu.payload;
  inbox_.skip = fpdu.trailer();
  buffer_.drop(kChunkHeader);
}

void ChunkReceiver::on_end() {
  if (buffer_.is_empty() || !has_peer_ended(fd_)) return;
  error_ = fail_cut(c_, fd_);
  if (error_ == 0) buffer_.drop(buffer_.size());
}

// Programs take what FIONREAD told as all there is, and then wait for an edge. Part of an FPDU that
// lay behind it must not be left where it may keep the kernel from taking the rest.
void ChunkReceiver::settle_count() {
  ReceiveCount& count = rx_.count;
  count.take_payload(got_);
  if (is_at_border_ || (error_ != 0 && error_ != EAGAIN)) {
    count.forget();
  } else if (count.payload == 0 && count.queue > 0 && inbox_.left == 0) {
    take_partial(c_, fd_);
  }
}

Io ChunkReceiver::finish() {
  if (fd_.is_copy()) [[unlikely]]
    return got_ > 0 ? Io::ok(static_cast<ssize_t>(got_)) : Io::fail(EINTR);
  if (must_drop_ && fd_ < 0) {
    inbox_.has_kept_byte = true;
  } else if (must_drop_ && error_ == 0) {
    // With the last payload byte goes the byte that stood for it; the next header comes along.
    if (read(is_near_border_ ? 0 : kChunkHeader, MSG_DONTWAIT) <= 0)
      error_ = fail_lost(c_, fd_, "a byte known to be queued is gone");
  }
  if (c_.is_state(StreamState::kFailed)) {
    buffer_.clear();
    inbox_.left = 0;
  }
  if (buffer_.is_empty() && inbox_.left == 0) {
    buffer_.free();
  } else if (!buffer_.leave_stack()) {
    fail_for_memory();
    buffer_.clear();
  }
  buffer_.put_on_record();
  if (rx_.count.is_known()) [[unlikely]]
    settle_count();
  if (error_ == EPROTOTYPE) [[unlikely]]
    return recv_turned(c_, fd_, to_, flags_, got_, patience_);
  if (got_ > 0) {
    // The kernel reports an error once; it must not be lost behind the bytes that came before it.
    if (error_ != 0 && error_ != EAGAIN && error_ != EINTR && error_ != EBADF) rx_.error = error_;
    return Io::ok(static_cast<ssize_t>(got_));
  }
  if (error_ != 0) return Io::fail(error_);
  return is_at_border() ? Io::ok(0) : end_of_stream(c_);
}

}  // namespace ddpsock::engine
