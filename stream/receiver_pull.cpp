// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/receiver_pull.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/cancellation.h"
#include "base/sys.h"
#include "stream/failure.h"
#include "stream/lanes.h"
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

bool make_room(ReceiveCall& call, uint32_t ask) {
  return call.buffer.make_room(ask) || call.fail_for_memory();
}

// recvmsg that also learns how many bytes stay behind (TCP_INQ). The kernel counts a FIN as a byte.
ssize_t receive_message(ReceiveCall& call, std::span<const iovec> into, int flags) {
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(into.data());
  m.msg_iovlen = into.size();
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  const ssize_t n = base::sys.recvmsg(call.fd, &m, flags);
  if (n <= 0) return n;
  call.rx.count.take_queued(static_cast<size_t>(n));
  call.rx.queued = 0;
  const cmsghdr* c = CMSG_FIRSTHDR(&m);
  if (c != nullptr && c->cmsg_level == IPPROTO_TCP && c->cmsg_type == TCP_CM_INQ) {
    int queued;
    std::memcpy(&queued, CMSG_DATA(c), sizeof queued);
    if (queued > 1) call.rx.queued = static_cast<uint32_t>(queued) - 1;
  }
  return n;
}

void enable_queue_hints(ReceiveCall& call) {
  const int one = 1;
  const int saved = errno;
  // Refused before Linux 4.18; then bulk goes through the buffer.
  call.rx.has_queue_hints =
      base::sys.setsockopt(call.fd, IPPROTO_TCP, TCP_INQ, &one, sizeof one) == 0;
  errno = saved;
}

ssize_t peek(ReceiveCall& call, MutBytes to, int flags) {
  const bool may_sleep = (flags & MSG_DONTWAIT) == 0;
  if (may_sleep && !call.prepare_to_sleep()) return -1;
  const ssize_t n = base::sys.recv(call.fd, to.data(), to.size(), flags | MSG_PEEK);
  if (may_sleep) call.wake_up();
  return call.error == 0 ? n : -1;
}

ssize_t await_byte(ReceiveCall& call, int flags) {
  uint8_t byte;
  return peek(call, {&byte, 1}, flags);
}

// The kernel may have given bytes to a process that is killed before it comes back from its sleep,
// where a relative would go on; and another thread may offer memory meanwhile.
bool sleeps_without_taking(const ReceiveCall& call) {
  return call.c.arena.records.may_be_shared(&call.c.r) ||
         base::is_any_asynchronous.load(std::memory_order_relaxed) ||
         (may_offer_memory(call.c) && !base::is_single_threaded());
}

ssize_t read_more(ReceiveCall& call, uint32_t ask, int flags) {
  if (call.must_drop) ++ask;
  // Beyond the small buffer only what is known to be queued pays for a block.
  if (!make_room(call, ask)) return -1;
  // What is known to be queued is not slept for.
  if (call.rx.queued > 0) flags |= MSG_DONTWAIT;
  if ((flags & MSG_DONTWAIT) == 0 && sleeps_without_taking(call)) {
    const bool was_near_border = call.is_near_border;
    const ssize_t n = await_byte(call, 0);
    if (n <= 0 || call.is_near_border != was_near_border) return n;
    flags |= MSG_DONTWAIT;
  }
  if ((flags & MSG_DONTWAIT) == 0 && !call.prepare_to_sleep()) return -1;
  MutBytes room = call.buffer.room();
  if (room.size() > ask) room = room.first(ask);
  ssize_t n;
  if (call.rx.has_queue_hints && room.size() >= kFirstLook) {
    const iovec one{room.data(), room.size()};
    n = receive_message(call, {&one, 1}, flags);
  } else {
    n = base::sys.recv(call.fd, room.data(), room.size(), flags);
    if (n > 0) {
      call.rx.queued -= std::min(call.rx.queued, static_cast<uint32_t>(n));
      call.rx.count.take_queued(static_cast<size_t>(n));
    }
  }
  if ((flags & MSG_DONTWAIT) == 0) call.wake_up(n > 0);
  if (call.error != 0) return -1;
  if (n <= 0) return n;
  call.buffer.add(static_cast<uint32_t>(n));
  if (call.must_drop) {
    call.must_drop = false;
    call.buffer.drop(1);
  }
  call.is_drained = n < static_cast<ssize_t>(room.size());
  return n;
}

// All of the FPDU but its last byte is here: learn that byte, verify, and leave it where it is.
ssize_t keep_last_byte(ReceiveCall& call, int flags) {
  if (!make_room(call, 1)) return -1;
  if ((flags & MSG_DONTWAIT) == 0 && !call.prepare_to_sleep()) return -1;
  const ssize_t n = base::sys.recv(call.fd, call.buffer.room().data(), 1, flags | MSG_PEEK);
  if ((flags & MSG_DONTWAIT) == 0) call.wake_up();
  if (call.error != 0) return -1;
  if (n <= 0) return n;
  const Fpdu fpdu = call.c.reader().look({call.buffer.bytes().data(), call.buffer.size() + 1});
  if (!call.is_good(fpdu)) return -1;
  call.accept(fpdu);
  call.inbox.skip -= 1;
  call.inbox.has_kept_byte = true;
  return n;
}

// Payload into the program's memory, then the trailer and the next header into the buffer. All of
// the FPDU is known to be queued, so nothing of it can be left in memory that the next call might
// not bring again. 0: not possible with this scatter list.
ssize_t pull_directly(ReceiveCall& call, const Fpdu& fpdu, uint32_t rest) {
  iovec slices[kMaxSlices + 1];
  const Bytes beginning = call.buffer.bytes();
  const uint32_t here = call.buffer.size() - kChunkHeader;
  IoCursor ahead = call.to;
  ahead.skip(here);
  const size_t coming = fpdu.payload - here;
  size_t covered = coming;
  const size_t used = ahead.slice({slices, kMaxSlices}, covered);
  if (covered < coming) return 0;

  const uint32_t crc = call.c.r.has_crc ? base::crc32c(beginning) : 0;
  call.to.put(beginning.data() + kChunkHeader, here);
  call.c.r.received.bytes_copied.add(here);
  call.count(fpdu);
  call.buffer.clear();
  uint8_t* const behind = call.buffer.room().data();
  slices[used] = {behind, rest - coming + kChunkHeader};
  const ssize_t n = receive_message(call, {slices, used + 1}, MSG_DONTWAIT);
  if (n < static_cast<ssize_t>(rest)) {
    call.error = fail_lost(call.c, call.fd, "bytes that the kernel had announced are gone");
    return -1;
  }
  call.buffer.add(static_cast<uint32_t>(static_cast<size_t>(n) - coming));
  const uint32_t trailer = rest - static_cast<uint32_t>(coming);
  if (call.c.r.has_crc) {
    call.c.count_crc();
    if (!ChunkReader::is_intact(crc, {slices, used}, {behind, trailer})) {
      call.error = fail_crc(call.c, call.fd);
      return -1;
    }
  }
  call.to.skip(coming);
  call.got += fpdu.payload;
  call.buffer.drop(trailer);
  call.is_drained = false;
  return n;
}

// Of the FPDUs that lie ahead: the first, and those that the peer has counted, so that they come
// before what it writes to memory; as many as are here and have room. 0: read it piece by piece.
uint32_t size_of_known(const ReceiveCall& call, Bytes ahead) {
  ChunkReader reader(call.rx.msn, call.rx.mo, false, call.c.speaks_raw());
  const bool is_counted = !call.inbox.has_beyond() && call.c.segment.load() != nullptr;
  const uint32_t counted = is_counted ? InLane(call.c)->first_fpdu_in_memory() : call.rx.msn;
  uint32_t size = 0;
  size_t room = call.to.left();
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

}  // namespace

ssize_t pull(ReceiveCall& call) {
  const uint32_t have = call.buffer.size();
  const bool may_wait = (call.flags & MSG_DONTWAIT) == 0 && call.wants_more();
  const int flags = may_wait ? 0 : MSG_DONTWAIT;
  const size_t room = call.to.left();
  if (room >= kBulkRoom && !call.rx.has_queue_hints) enable_queue_hints(call);
  if (have < kChunkHeader) {
    uint32_t ask = first_read_size(room) - have;
    if (room >= kBulkRoom) ask = std::min(ask, kFirstLook);
    return read_more(call, ask, flags);
  }
  const Fpdu fpdu = call.front();
  const uint32_t rest = fpdu.size - have;
  // What follows one that is not of the stream may be none.
  if (!fpdu.is_of_stream) return read_more(call, rest, flags);
  if (fpdu.payload <= room) {
    // Who watches sees FPDUs whole.
    if (rest >= kDirectMin && call.rx.queued > rest && (call.flags & MSG_TRUNC) == 0 &&
        !is_watched()) {
      const ssize_t n = pull_directly(call, fpdu, rest);
      if (n != 0) return n;
    }
    const size_t room_after = room - fpdu.payload;
    return read_more(call,
                     rest + (room_after > 0 ? std::min(first_read_size(room_after), kFirstLook * 32)
                                            : kChunkHeader),
                     flags);
  }
  // More than the caller takes: a byte stays in the kernel until the last of it is delivered.
  if (call.rx.queued >= rest + 2)
    return read_more(call, std::min(rest + kChunkHeader, call.rx.queued - 2), flags);
  return rest > 1 ? read_more(call, rest - 1, flags) : keep_last_byte(call, flags);
}

// The peer hands an FPDU over whole. Nothing beyond those that are known is read: where the stream
// has moved to memory meanwhile, an octet stays for the bytes that the call may leave there.
ssize_t pull_no_further(ReceiveCall& call) {
  if (call.must_drop) return drop_kept_byte(call);
  const bool may_wait = (call.flags & MSG_DONTWAIT) == 0 && call.wants_more();
  int flags = may_wait ? 0 : MSG_DONTWAIT;
  const uint32_t have = call.buffer.size();
  if (have == 0) {
    if (!make_room(call, ReceiveBuffer::kSmall)) return -1;
    const MutBytes ahead = call.buffer.room().first(ReceiveBuffer::kSmall);
    const ssize_t n = peek(call, ahead, flags);
    if (n <= 0 || is_at_memory(call.c)) return n;
    flags = MSG_DONTWAIT;
    const uint32_t known = size_of_known(call, ahead.first(static_cast<size_t>(n)));
    if (known != 0) return read_more(call, known, flags);
  }
  if (have < kChunkHeader) return read_more(call, kChunkHeader - have, flags);
  const Fpdu fpdu = call.front();
  const uint32_t rest = fpdu.size - have;
  if (fpdu.payload <= call.to.left()) return read_more(call, rest, flags);
  return rest > 1 ? read_more(call, rest - 1, flags) : keep_last_byte(call, flags);
}

ssize_t drop_kept_byte(ReceiveCall& call) {
  return read_more(call, call.is_near_border ? 0 : kChunkHeader, MSG_DONTWAIT);
}

}  // namespace ddpsock::engine
