// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving. One call reads from the kernel at most what it can deliver and one frame's overhead,
// so that in the common case one system call brings one message and nothing is left over; what is
// left over is covered by a byte that stays in the kernel (doc/design.md decision 3, I1).
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <utility>

#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/receiver.h"
#include "engine/user/user_stream.h"

namespace ddpsock::engine {
namespace {

// From here on payload goes from the socket straight into the program's memory; below, one read
// into the buffer and a copy are faster than a scatter list.
constexpr uint32_t kDirectMin = 12 * 1024;
// A reader with so much room gets its bulk directly, so the first look at a new FPDU is kept short.
constexpr uint32_t kBulkRoom = 128 * 1024;
constexpr uint32_t kFirstLook = 2048;
constexpr size_t kMaxSlices = 24;

// How many bytes may be read with `room` left in the program's buffers and no header seen yet: all
// that one chunk of `room` bytes needs. Its last byte is left behind where a chunk with up to three
// more bytes of payload would have the same size.
uint32_t first_read_size(size_t room) {
  const auto n = static_cast<uint32_t>(std::min<size_t>(room, Arena::kBlockSize));
  return n % 4 == 0 ? n + kChunkHeader + MPA_CRC_SIZE : chunk_size(n) - 1;
}

}  // namespace

UserStream::Receiver::Receiver(UserStream& stream, int fd, std::span<const iovec> to, int flags)
    : s_(stream), rx_(stream.rx_), fd_(fd), to_(to), flags_(flags), lane_(stream.reading_lane()) {
  if (rx_.block != Arena::kNoBlock) {
    data_ = s_.arena_.block_data(rx_.block);
    capacity_ = Arena::kBlockSize;
    beg_ = rx_.beg;
    end_ = rx_.end;
  }
}

Io UserStream::Receiver::run() {
  if (lane_) ask_for_edge();
  for (;;) {
    deliver();
    if (to_.left() == 0) break;
    if ((lane_ && take_from_lane()) || (s_.has_residue() && take_residue())) continue;
    if (error_ != 0) break;
    const Front front = look();
    if (front == Front::kVerified) continue;
    if (front == Front::kFailed) break;
    if (has_enough()) {
      if (got_ == 0) error_ = EAGAIN;
      break;
    }
    const ssize_t n = lane_ || s_.has_residue() ? pull_beside_lane() : pull();
    if (n > 0) continue;
    if (n < 0 && error_ == 0) error_ = errno;
    if (lane_ && !on_wire_end(n)) continue;
    if (n == 0) on_end();
    break;
  }
  return finish();
}

// The kernel was empty at the last read, and there is something to return.
bool UserStream::Receiver::has_enough() const {
  if (lane_) {
    const bool may_end = (flags_ & MSG_DONTWAIT) != 0 || !wants_more();
    return got_ > 0 && may_end && !lane_->is_wire_in_use(rx_.msn);
  }
  if (!is_drained_ || must_drop_) return false;
  if ((flags_ & MSG_DONTWAIT) != 0) return true;
  return !wants_more();
}

bool UserStream::Receiver::wants_more() const {
  if (got_ == 0) return true;
  if ((flags_ & MSG_WAITALL) != 0) return true;
  return got_ < static_cast<size_t>(std::max(rx_.low_water.load(), 1));
}

void UserStream::Receiver::deliver() {
  if (rx_.left == 0) return;
  const auto n = static_cast<uint32_t>(std::min<size_t>(rx_.left, to_.left()));
  put(data_ + beg_, n);
  beg_ += n;
  rx_.left -= n;
  if (rx_.left > 0) return;
  beg_ += rx_.skip;
  must_drop_ = rx_.has_kept_byte;
  rx_.has_kept_byte = false;
}

void UserStream::Receiver::put(const uint8_t* from, uint32_t n) {
  if ((flags_ & MSG_TRUNC) != 0) {
    to_.skip(n);
  } else {
    to_.put(from, n);
    s_.r_.received.bytes_copied.add(n);
  }
  got_ += n;
}

UserStream::Receiver::Front UserStream::Receiver::look() {
  for (;;) {
    const uint32_t have = end_ - beg_;
    if (have < kChunkHeader) return Front::kIncomplete;
    const uint8_t* p = data_ + beg_;
    const uint32_t ulpdu = base::load_be16(p);
    const uint32_t size = fpdu_size(ulpdu);
    if (ulpdu >= DDP_TAGGED_HEADER_SIZE && have < size) return Front::kIncomplete;
    if (!is_data(p)) {
      error_ = s_.take_control(fd_, {p, std::min(have, size)});
      if (error_ != 0) return Front::kFailed;
      beg_ += size;
      continue;
    }
    if (!verify(size)) return Front::kFailed;
    accept_chunk(ulpdu - DDP_UNTAGGED_HEADER_SIZE, size);
    if (rx_.left > 0) return Front::kVerified;
    beg_ += rx_.skip;
    // Bytes of the lane may lie between this FPDU and the next.
    if (lane_ || s_.has_residue()) return Front::kVerified;
  }
}

// REQUIRES: the whole FPDU in front is in the buffer.
bool UserStream::Receiver::verify(uint32_t size) {
  const uint8_t* p = data_ + beg_;
  if (!s_.r_.has_crc) return true;
  s_.count_crc();
  if (base::crc32c({p, size - MPA_CRC_SIZE}) == base::load_le32(p + size - MPA_CRC_SIZE))
    return true;
  error_ = s_.fail_crc(fd_);
  return false;
}

// Also a Send of a stranger, cut into several segments: the lower layer keeps them in order.
bool UserStream::Receiver::is_data(const uint8_t* p) const {
  return (is_chunk(p, rx_.msn) && rx_.mo == 0) || s_.is_stream_segment(p);
}

void UserStream::Receiver::count_segment(const uint8_t* p, uint32_t payload) {
  if ((p[MPA_ULPDU_LENGTH_SIZE] & DDP_CTRL_LAST) != 0) {
    ++rx_.msn;
    rx_.mo = 0;
  } else {
    rx_.mo += payload;
  }
  if (lane_) lane_->note_fpdu(rx_.msn);
  if (payload == 0) ++s_.r_.memory.rx.bells;
  s_.count_received(payload);
}

void UserStream::Receiver::accept_chunk(uint32_t payload, uint32_t size) {
  count_segment(data_ + beg_, payload);
  rx_.left = payload;
  rx_.skip = size - kChunkHeader - payload;
  beg_ += kChunkHeader;
}

ssize_t UserStream::Receiver::pull() {
  const uint32_t have = end_ - beg_;
  const bool may_wait = (flags_ & MSG_DONTWAIT) == 0 && wants_more();
  const int flags = may_wait ? 0 : MSG_DONTWAIT;
  const size_t room = to_.left();
  if (room >= kBulkRoom && !rx_.has_queue_hints) enable_queue_hints();
  if (have < kChunkHeader) {
    uint32_t ask = first_read_size(room) - have;
    if (room >= kBulkRoom) ask = std::min(ask, kFirstLook);
    return read(ask, flags);
  }
  const uint8_t* p = data_ + beg_;
  const uint32_t ulpdu = base::load_be16(p);
  const uint32_t rest = fpdu_size(ulpdu) - have;
  const uint32_t payload = is_data(p) ? ulpdu - DDP_UNTAGGED_HEADER_SIZE : 0;
  if (payload <= room) {
    if (rest >= kDirectMin && rx_.queued > rest && (flags_ & MSG_TRUNC) == 0) {
      const ssize_t n = pull_directly(payload, rest);
      if (n != 0) return n;
    }
    const size_t room_after = room - payload;
    return read(rest + (room_after > 0 ? std::min(first_read_size(room_after), kFirstLook * 32)
                                       : kChunkHeader),
                flags);
  }
  // More than the caller takes: a byte stays in the kernel until the last of it is delivered.
  if (rx_.queued >= rest + 2) return read(std::min(rest + kChunkHeader, rx_.queued - 2), flags);
  return rest > 1 ? read(rest - 1, flags) : keep_last_byte(flags);
}

// All of the FPDU but its last byte is here: learn that byte, verify, and leave it where it is.
ssize_t UserStream::Receiver::keep_last_byte(int flags) {
  if (!make_room(1)) return -1;
  if ((flags & MSG_DONTWAIT) == 0 && !prepare_to_sleep()) return -1;
  const ssize_t n = base::sys.recv(fd_, data_ + end_, 1, flags | MSG_PEEK);
  rx_.is_asleep = false;
  if (n <= 0) return n;
  const uint32_t ulpdu = base::load_be16(data_ + beg_);
  const uint32_t size = fpdu_size(ulpdu);
  if (!verify(size)) return -1;
  accept_chunk(ulpdu - DDP_UNTAGGED_HEADER_SIZE, size);
  rx_.skip -= 1;
  rx_.has_kept_byte = true;
  return n;
}

// Payload into the program's memory, then the trailer and the next header into the buffer. All of
// the FPDU is known to be queued, so nothing of it can be left in memory that the next call might
// not bring again. 0: not possible with this scatter list.
ssize_t UserStream::Receiver::pull_directly(uint32_t payload, uint32_t rest) {
  iovec slices[kMaxSlices + 1];
  const uint8_t* p = data_ + beg_;
  const uint32_t here = end_ - beg_ - kChunkHeader;
  IoCursor ahead = to_;
  ahead.skip(here);
  const size_t coming = payload - here;
  size_t covered = coming;
  const size_t used = ahead.slice({slices, kMaxSlices}, covered);
  if (covered < coming) return 0;

  uint32_t crc = s_.r_.has_crc ? base::crc32c({p, end_ - beg_}) : 0;
  to_.put(p + kChunkHeader, here);
  s_.r_.received.bytes_copied.add(here);
  count_segment(p, payload);
  if (data_ == nullptr && !move_to_block()) return -1;
  beg_ = end_ = 0;
  slices[used] = {data_, rest - coming + kChunkHeader};
  const ssize_t n = receive_message({slices, used + 1}, MSG_DONTWAIT);
  if (n < static_cast<ssize_t>(rest)) {
    error_ = s_.fail_lost(fd_, "bytes that the kernel had announced are gone");
    return -1;
  }
  end_ = static_cast<uint32_t>(static_cast<size_t>(n) - coming);
  const uint32_t trailer = rest - static_cast<uint32_t>(coming);
  if (s_.r_.has_crc) {
    s_.count_crc();
    for (const iovec& v : std::span(slices, used))
      crc = base::crc32c_extend(crc, {static_cast<const uint8_t*>(v.iov_base), v.iov_len});
    crc = base::crc32c_extend(crc, {data_, trailer - MPA_CRC_SIZE});
    if (crc != base::load_le32(data_ + trailer - MPA_CRC_SIZE)) {
      error_ = s_.fail_crc(fd_);
      return -1;
    }
  }
  to_.skip(coming);
  got_ += payload;
  beg_ = trailer;
  is_drained_ = false;
  return n;
}

ssize_t UserStream::Receiver::read(uint32_t ask, int flags) {
  if (must_drop_) ++ask;
  // Beyond the small buffer only what is known to be queued pays for a block.
  if (!make_room(ask)) return -1;
  if ((flags & MSG_DONTWAIT) == 0 && !prepare_to_sleep()) return -1;
  ask = std::min(ask, capacity_ - end_);
  ssize_t n;
  if (rx_.has_queue_hints && ask >= kFirstLook) {
    const iovec one{data_ + end_, ask};
    n = receive_message({&one, 1}, flags);
  } else {
    n = base::sys.recv(fd_, data_ + end_, ask, flags);
    if (n > 0) rx_.queued -= std::min(rx_.queued, static_cast<uint32_t>(n));
  }
  rx_.is_asleep = false;
  if (n <= 0) return n;
  end_ += static_cast<uint32_t>(n);
  if (must_drop_) {
    must_drop_ = false;
    ++beg_;
  }
  is_drained_ = n < static_cast<ssize_t>(ask);
  return n;
}

// recvmsg that also learns how many bytes stay behind (TCP_INQ). The kernel counts a FIN as a byte.
ssize_t UserStream::Receiver::receive_message(std::span<const iovec> into, int flags) {
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(into.data());
  m.msg_iovlen = into.size();
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  const ssize_t n = base::sys.recvmsg(fd_, &m, flags);
  if (n <= 0) return n;
  rx_.queued = 0;
  const cmsghdr* c = CMSG_FIRSTHDR(&m);
  if (c != nullptr && c->cmsg_level == IPPROTO_TCP && c->cmsg_type == TCP_CM_INQ) {
    int queued;
    std::memcpy(&queued, CMSG_DATA(c), sizeof queued);
    if (queued > 1) rx_.queued = static_cast<uint32_t>(queued) - 1;
  }
  return n;
}

void UserStream::Receiver::enable_queue_hints() {
  const int one = 1;
  const int saved = errno;
  // Refused before Linux 4.18; then bulk goes through the buffer.
  rx_.has_queue_hints = base::sys.setsockopt(fd_, IPPROTO_TCP, TCP_INQ, &one, sizeof one) == 0;
  errno = saved;
}

// The process may be killed in its sleep: what the record says is then what is so, and a relative
// goes on from there.
bool UserStream::Receiver::prepare_to_sleep() {
  if (must_drop_) {
    ++base::effort.waits;
    return true;
  }
  if (data_ == small_ && end_ > beg_ && !move_to_block()) return false;
  rx_.beg = beg_;
  rx_.end = end_;
  rx_.is_asleep = true;
  ++base::effort.waits;
  return true;
}

// At least one byte of room, and `ask` if a buffer can have it.
bool UserStream::Receiver::make_room(uint32_t ask) {
  if (data_ == nullptr && ask <= kSmallBuffer) {
    data_ = small_;
    capacity_ = kSmallBuffer;
  }
  if (beg_ == end_) beg_ = end_ = 0;
  if (data_ != nullptr && capacity_ - end_ >= ask) return true;
  if (data_ == nullptr || data_ == small_) return move_to_block();
  std::memmove(data_, data_ + beg_, end_ - beg_);
  end_ -= beg_;
  beg_ = 0;
  return true;
}

bool UserStream::Receiver::move_to_block() {
  const uint32_t block = s_.arena_.allocate_block();
  if (block == Arena::kNoBlock) {
    error_ = s_.fail_lost(fd_, "no memory for received bytes");
    return false;
  }
  uint8_t* to = s_.arena_.block_data(block);
  if (end_ > beg_) std::memcpy(to, data_ + beg_, end_ - beg_);
  end_ -= beg_;
  beg_ = 0;
  data_ = to;
  capacity_ = Arena::kBlockSize;
  rx_.block = block;
  return true;
}

void UserStream::Receiver::on_end() {
  if (end_ > beg_) error_ = s_.fail_lost(fd_, "the peer's stream ended inside an FPDU");
}

Io UserStream::Receiver::finish() {
  if (must_drop_ && error_ == 0) {
    // With the last payload byte goes the byte that stood for it; the next header comes along.
    if (read(kChunkHeader, MSG_DONTWAIT) <= 0)
      error_ = s_.fail_lost(fd_, "a byte known to be queued is gone");
  }
  if (lane_) note_habit();
  if (lane_ && got_ > 0 && error_ == 0 && !may_bell_lie()) settle();
  if (s_.is_state(StreamState::kFailed)) beg_ = end_ = rx_.left = 0;
  if (beg_ == end_ && rx_.left == 0) {
    if (rx_.block != Arena::kNoBlock) {
      s_.arena_.free_block(rx_.block);
      rx_.block = Arena::kNoBlock;
    }
  } else if (data_ == small_ && !move_to_block()) {
    beg_ = end_ = 0;
  }
  rx_.beg = beg_;
  rx_.end = end_;
  if (got_ > 0) {
    // The kernel reports an error once; it must not be lost behind the bytes that came before it.
    if (error_ != 0 && error_ != EAGAIN && error_ != EINTR) rx_.error = error_;
    return Io::ok(static_cast<ssize_t>(got_));
  }
  return error_ != 0 ? Io::fail(error_) : Io::ok(0);
}

Io UserStream::recv_now(int fd, std::span<const iovec> to, int flags) {
  const KeepErrno keep;
  constexpr int kKnown =
      MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_TRUNC | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;
  if ((flags & ~kKnown) != 0) return Io::fail(EOPNOTSUPP);
  Hold hold(*this, rx_.lease);
  if (const int e = hold.take(fd, Hold::kReceive, flags); e != 0) return Io::fail(e);
  if (rx_.is_drained || r_.is_one_sided.load(std::memory_order_relaxed)) [[unlikely]] {
    hold.end();
    return recv_one_sided(fd, to, flags);
  }
  if (rx_.error != 0 && !has_bytes_left()) return Io::fail(std::exchange(rx_.error, 0));
  if (is_state(StreamState::kFailed)) return Io::ok(0);
  if (!rx_.is_started) {
    if (const int e = start_receiving(fd, flags); e != 0)
      return e == kEndOfStream ? Io::ok(0) : Io::fail(e);
  }
  if (r_.memory.state == MemoryState::kInvited) {
    if (const int e = try_to_join(fd); e != 0) return Io::fail(e);
  }
  if (r_.memory.state == MemoryState::kOffered) notice_joining_while_receiving(fd);
  if (IoCursor(to).left() == 0) {
    // Nothing to place, but the call still waits or refuses as TCP's does.
    const ssize_t n = base::sys.recv(fd, nullptr, 0, flags & MSG_DONTWAIT);
    return n < 0 ? Io::fail(errno) : Io::ok(0);
  }
  if ((flags & MSG_PEEK) != 0)
    return reading_lane() || has_residue() ? peek_beside_lane(fd, to, flags) : peek(fd, to, flags);
  const Io io = Receiver(*this, fd, to, flags).run();
  // Another process has begun with one-sided operations meanwhile, and what came is for it.
  if (io.error == EAGAIN && r_.is_one_sided.load(std::memory_order_relaxed)) [[unlikely]] {
    hold.end();
    return recv_one_sided(fd, to, flags);
  }
  return io;
}

}  // namespace ddpsock::engine
