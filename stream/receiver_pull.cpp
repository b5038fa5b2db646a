// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a receive call takes bytes from the kernel: how many at once, where to, and what a sleep
// leaves behind if the process is killed in it.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/cancellation.h"
#include "base/sys.h"
#include "stream/failure.h"
#include "stream/io_cursor.h"
#include "stream/lanes.h"
#include "stream/memory_start.h"
#include "stream/receiver.h"
#include "stream/sleep.h"
#include "stream/watching.h"

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
  const auto n = static_cast<uint32_t>(std::min<size_t>(room, Blocks::kBlockSize));
  return n % 4 == 0 ? n + kChunkHeader + MPA_CRC_SIZE : chunk_size(n) - 1;
}

}  // namespace

ssize_t ChunkReceiver::pull() {
  const uint32_t have = buffer_.size();
  const bool may_wait = (flags_ & MSG_DONTWAIT) == 0 && wants_more();
  const int flags = may_wait ? 0 : MSG_DONTWAIT;
  const size_t room = to_.left();
  if (room >= kBulkRoom && !rx_.has_queue_hints) enable_queue_hints();
  if (have < kChunkHeader) {
    uint32_t ask = first_read_size(room) - have;
    if (room >= kBulkRoom) ask = std::min(ask, kFirstLook);
    return read(ask, flags);
  }
  const Fpdu fpdu = front();
  const uint32_t rest = fpdu.size - have;
  // What follows one that is not of the stream may be none.
  if (!fpdu.is_of_stream) return read(rest, flags);
  if (fpdu.payload <= room) {
    // Who watches sees FPDUs whole.
    if (rest >= kDirectMin && rx_.queued > rest && (flags_ & MSG_TRUNC) == 0 && !is_watched()) {
      const ssize_t n = pull_directly(fpdu, rest);
      if (n != 0) return n;
    }
    const size_t room_after = room - fpdu.payload;
    return read(rest + (room_after > 0 ? std::min(first_read_size(room_after), kFirstLook * 32)
                                       : kChunkHeader),
                flags);
  }
  // More than the caller takes: a byte stays in the kernel until the last of it is delivered.
  if (rx_.queued >= rest + 2) return read(std::min(rest + kChunkHeader, rx_.queued - 2), flags);
  return rest > 1 ? read(rest - 1, flags) : keep_last_byte(flags);
}

// All of the FPDU but its last byte is here: learn that byte, verify, and leave it where it is.
ssize_t ChunkReceiver::keep_last_byte(int flags) {
  if (!make_room(1)) return -1;
  if ((flags & MSG_DONTWAIT) == 0 && !prepare_to_sleep()) return -1;
  const ssize_t n = base::sys.recv(fd_, buffer_.room().data(), 1, flags | MSG_PEEK);
  if ((flags & MSG_DONTWAIT) == 0) wake_up();
  if (error_ != 0) return -1;
  if (n <= 0) return n;
  const Fpdu fpdu = c_.reader().look({buffer_.bytes().data(), buffer_.size() + 1});
  if (!is_good(fpdu)) return -1;
  accept(fpdu);
  inbox_.skip -= 1;
  inbox_.has_kept_byte = true;
  return n;
}

// Payload into the program's memory, then the trailer and the next header into the buffer. All of
// the FPDU is known to be queued, so nothing of it can be left in memory that the next call might
// not bring again. 0: not possible with this scatter list.
ssize_t ChunkReceiver::pull_directly(const Fpdu& fpdu, uint32_t rest) {
  iovec slices[kMaxSlices + 1];
  const Bytes beginning = buffer_.bytes();
  const uint32_t here = buffer_.size() - kChunkHeader;
  IoCursor ahead = to_;
  ahead.skip(here);
  const size_t coming = fpdu.payload - here;
  size_t covered = coming;
  const size_t used = ahead.slice({slices, kMaxSlices}, covered);
  if (covered < coming) return 0;

  const uint32_t crc = c_.r.has_crc ? base::crc32c(beginning) : 0;
  to_.put(beginning.data() + kChunkHeader, here);
  c_.r.received.bytes_copied.add(here);
  count(fpdu);
  buffer_.clear();
  uint8_t* const behind = buffer_.room().data();
  slices[used] = {behind, rest - coming + kChunkHeader};
  const ssize_t n = receive_message({slices, used + 1}, MSG_DONTWAIT);
  if (n < static_cast<ssize_t>(rest)) {
    error_ = fail_lost(c_, fd_, "bytes that the kernel had announced are gone");
    return -1;
  }
  buffer_.add(static_cast<uint32_t>(static_cast<size_t>(n) - coming));
  const uint32_t trailer = rest - static_cast<uint32_t>(coming);
  if (c_.r.has_crc) {
    c_.count_crc();
    if (!ChunkReader::is_intact(crc, {slices, used}, {behind, trailer})) {
      error_ = fail_crc(c_, fd_);
      return -1;
    }
  }
  to_.skip(coming);
  got_ += fpdu.payload;
  buffer_.drop(trailer);
  is_drained_ = false;
  return n;
}

// The peer hands an FPDU over whole. Nothing beyond those that are known is read: where the stream
// has moved to memory meanwhile, an octet stays for the bytes that the call may leave there.
ssize_t ChunkReceiver::pull_no_further() {
  if (must_drop_) return read(0, MSG_DONTWAIT);
  const bool may_wait = (flags_ & MSG_DONTWAIT) == 0 && wants_more();
  int flags = may_wait ? 0 : MSG_DONTWAIT;
  const uint32_t have = buffer_.size();
  if (have == 0) {
    if (!make_room(ReceiveBuffer::kSmall)) return -1;
    const MutBytes ahead = buffer_.room().first(ReceiveBuffer::kSmall);
    const ssize_t n = peek(ahead, flags);
    if (n <= 0 || is_at_memory(c_)) return n;
    flags = MSG_DONTWAIT;
    const uint32_t known = size_of_known(ahead.first(static_cast<size_t>(n)));
    if (known != 0) return read(known, flags);
  }
  if (have < kChunkHeader) return read(kChunkHeader - have, flags);
  const Fpdu fpdu = front();
  const uint32_t rest = fpdu.size - have;
  if (fpdu.payload <= to_.left()) return read(rest, flags);
  return rest > 1 ? read(rest - 1, flags) : keep_last_byte(flags);
}

ssize_t ChunkReceiver::read(uint32_t ask, int flags) {
  if (must_drop_) ++ask;
  // Beyond the small buffer only what is known to be queued pays for a block.
  if (!make_room(ask)) return -1;
  // What is known to be queued is not slept for.
  if (rx_.queued > 0) flags |= MSG_DONTWAIT;
  if ((flags & MSG_DONTWAIT) == 0 && sleeps_without_taking()) {
    const bool was_near_border = is_near_border_;
    const ssize_t n = await_byte(0);
    if (n <= 0 || is_near_border_ != was_near_border) return n;
    flags |= MSG_DONTWAIT;
  }
  if ((flags & MSG_DONTWAIT) == 0 && !prepare_to_sleep()) return -1;
  MutBytes room = buffer_.room();
  if (room.size() > ask) room = room.first(ask);
  ssize_t n;
  if (rx_.has_queue_hints && room.size() >= kFirstLook) {
    const iovec one{room.data(), room.size()};
    n = receive_message({&one, 1}, flags);
  } else {
    n = base::sys.recv(fd_, room.data(), room.size(), flags);
    if (n > 0) {
      rx_.queued -= std::min(rx_.queued, static_cast<uint32_t>(n));
      rx_.count.take_queued(static_cast<size_t>(n));
    }
  }
  if ((flags & MSG_DONTWAIT) == 0) wake_up(n > 0);
  if (error_ != 0) return -1;
  if (n <= 0) return n;
  buffer_.add(static_cast<uint32_t>(n));
  if (must_drop_) {
    must_drop_ = false;
    buffer_.drop(1);
  }
  is_drained_ = n < static_cast<ssize_t>(room.size());
  return n;
}

// recvmsg that also learns how many bytes stay behind (TCP_INQ). The kernel counts a FIN as a byte.
ssize_t ChunkReceiver::receive_message(std::span<const iovec> into, int flags) {
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(into.data());
  m.msg_iovlen = into.size();
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  const ssize_t n = base::sys.recvmsg(fd_, &m, flags);
  if (n <= 0) return n;
  rx_.count.take_queued(static_cast<size_t>(n));
  rx_.queued = 0;
  const cmsghdr* c = CMSG_FIRSTHDR(&m);
  if (c != nullptr && c->cmsg_level == IPPROTO_TCP && c->cmsg_type == TCP_CM_INQ) {
    int queued;
    std::memcpy(&queued, CMSG_DATA(c), sizeof queued);
    if (queued > 1) rx_.queued = static_cast<uint32_t>(queued) - 1;
  }
  return n;
}

void ChunkReceiver::enable_queue_hints() {
  const int one = 1;
  const int saved = errno;
  // Refused before Linux 4.18; then bulk goes through the buffer.
  rx_.has_queue_hints = base::sys.setsockopt(fd_, IPPROTO_TCP, TCP_INQ, &one, sizeof one) == 0;
  errno = saved;
}

// The kernel may have given bytes to a process that is killed before it comes back from its sleep,
// where a relative would go on; and another thread may offer memory meanwhile.
bool ChunkReceiver::sleeps_without_taking() const {
  return c_.arena.records.may_be_shared(&c_.r) ||
         base::is_any_asynchronous.load(std::memory_order_relaxed) ||
         (may_offer_memory(c_) && !base::is_single_threaded());
}

// Of the FPDUs that lie ahead: the first, and those that the peer has counted, so that they come
// before what it writes to memory; as many as are here and have room. 0: read it piece by piece.
uint32_t ChunkReceiver::size_of_known(Bytes ahead) const {
  ChunkReader reader(rx_.msn, rx_.mo, false, c_.speaks_raw());
  const bool is_counted = !inbox_.has_beyond() && c_.segment.load() != nullptr;
  const uint32_t counted = is_counted ? InLane(c_)->first_fpdu_in_memory() : rx_.msn;
  uint32_t size = 0;
  size_t room = to_.left();
  do {
    const Fpdu fpdu = reader.look(ahead.subspan(size));
    const bool is_first = size == 0;
    const bool is_part = is_first && fpdu.is(Fpdu::Verdict::kPartial) && fpdu.is_of_stream;
    if ((!is_part && !fpdu.is(Fpdu::Verdict::kChunk)) || fpdu.payload > room) return size;
    size += fpdu.size;
    if (is_part) return size;
    room -= fpdu.payload;
    reader.take(fpdu);
  } while (static_cast<int32_t>(counted - reader.msn()) > 0);
  return size;
}

ssize_t ChunkReceiver::await_byte(int flags) {
  uint8_t byte;
  return peek({&byte, 1}, flags);
}

ssize_t ChunkReceiver::peek(MutBytes to, int flags) {
  const bool may_sleep = (flags & MSG_DONTWAIT) == 0;
  if (may_sleep && !prepare_to_sleep()) return -1;
  const ssize_t n = base::sys.recv(fd_, to.data(), to.size(), flags | MSG_PEEK);
  if (may_sleep) wake_up();
  return error_ == 0 ? n : -1;
}

// The process may be killed in its sleep: what the record says is then what is so, and a relative
// goes on from there.
bool ChunkReceiver::prepare_to_sleep() {
  if (must_drop_) {
    ++base::effort.waits;
    return true;
  }
  if (!buffer_.leave_stack()) return fail_for_memory();
  buffer_.put_on_record();
  rx_.is_asleep = true;
  ++base::effort.waits;
  return true;
}

// What the sleep has taken from the kernel is not in the record yet.
void ChunkReceiver::wake_up(bool has_taken) {
  if (fd_.is_copy()) [[unlikely]] {
    error_ = EINTR;
    return;
  }
  rx_.is_asleep = false;
  if (!has_taken && !wake_fully(rx_.is_asleep)) [[unlikely]] {
    error_ = EINTR;
    return;
  }
  fd_.note_sleep();
  look_for_border();
}

bool ChunkReceiver::make_room(uint32_t ask) {
  return buffer_.make_room(ask) || fail_for_memory();
}

bool ChunkReceiver::fail_for_memory() {
  error_ = fail_lost(c_, fd_, "no memory for received bytes");
  return false;
}

}  // namespace ddpsock::engine
