// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/scan.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/lanes.h"
#include "engine/user/patience.h"
#include "engine/user/receiver.h"
#include "engine/user/sleep.h"

namespace ddpsock::engine {

using Verdict = Fpdu::Verdict;

UserStream::Scan::Scan(UserStream& stream, int fd, size_t payload) : s_(stream), fd_(stream, fd) {
  constexpr size_t kFitsBlock = Arena::kBlockSize / 2;
  if (payload <= kFitsBlock) {
    block_ = stream.arena_.allocate_block();
    if (block_ != Arena::kNoBlock) data_ = stream.arena_.block_data(block_);
    return;
  }
  // Room for twice the payload: small chunks carry that much overhead.
  capacity_ = std::min(2 * payload + Arena::kBlockSize, kMostBytes);
  void* p = mmap(nullptr, capacity_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) data_ = static_cast<uint8_t*>(p);
}

UserStream::Scan::~Scan() {
  if (block_ != Arena::kNoBlock) {
    if (!fd_.is_copy()) s_.arena_.free_block(block_);
  } else if (data_ != nullptr) {
    munmap(data_, capacity_);
  }
}

size_t UserStream::Scan::take(Bytes bytes, IoCursor* to, bool is_truncating) {
  if (to == nullptr) return bytes.size();
  const size_t n = std::min(bytes.size(), to->left());
  is_truncating ? to->skip(n) : to->put(bytes.data(), n);
  return n;
}

UserStream::Scan::Sight UserStream::Scan::look(IoCursor* to, bool is_truncating) {
  return look_for(SIZE_MAX, to, is_truncating);
}

UserStream::Scan::Sight UserStream::Scan::look_for(size_t wanted, IoCursor* to,
                                                   bool is_truncating) {
  const Rx& rx = s_.rx_;
  Sight sight;
  // What was sent in memory, and FPDUs behind it: between them lie octets.
  const bool is_before_wire = s_.is_beyond_next() || s_.is_left_behind();
  const Inbox& inbox = rx.inbox;
  sight.payload = to != nullptr ? s_.show(inbox.ready, *to, is_truncating) : inbox.ready.size();
  if (is_before_wire) sight.payload += s_.look_behind_border(to, is_truncating);
  if (data_ == nullptr) {
    sight.error = sight.payload > 0 ? 0 : ENOBUFS;
    return sight;
  }
  // The buffer's bytes, then the kernel's: one run of bytes in the borrowed memory.
  uint8_t* const data = data_;
  sight.payload += take(inbox.front(s_.arena_), to, is_truncating);
  const Bytes unparsed = inbox.unparsed(s_.arena_);
  if (!unparsed.empty()) std::memcpy(data, unparsed.data(), unparsed.size());
  const auto buffered = static_cast<uint32_t>(unparsed.size());
  uint32_t end = buffered;
  const uint32_t kept = inbox.has_kept_byte ? 1 : 0;
  // The kept byte belongs to the FPDU in front: it is looked over.
  // A byte may come with every FPDU; one is in any that is whole.
  const size_t most =
      wanted <= 1 ? std::min<size_t>(capacity_ - end, kMaxFpdu + kept) : capacity_ - end;
  const ssize_t n = base::sys.recv(fd_, data + end, most, MSG_PEEK | MSG_DONTWAIT);
  const int error = errno;
  if (n > 0) sight.queued = static_cast<size_t>(n);
  if (n > static_cast<ssize_t>(kept)) {
    if (kept != 0) std::memmove(data + end, data + end + 1, static_cast<size_t>(n) - 1);
    end += static_cast<uint32_t>(n) - kept;
  }
  uint32_t beg =
      is_before_wire ? static_cast<uint32_t>(std::min<uint64_t>(s_.octets_before_wire(), end)) : 0;
  ChunkReader reader = s_.reader();
  const auto is_at_border = [&] { return !is_before_wire && s_.is_border(reader.msn()); };
  while ((to == nullptr || to->left() > 0) && sight.payload < wanted && !is_at_border()) {
    const Fpdu fpdu = reader.look({data + beg, end - beg});
    if (fpdu.is(Verdict::kNoHeader) || fpdu.is(Verdict::kPartial)) break;
    if (!fpdu.is(Verdict::kChunk)) {
      // For recv() to deal with: it may have something to report.
      if (sight.payload > 0) return sight;
      sight.has_control = fpdu.is(Verdict::kControl);
      sight.has_empty |= sight.has_control;
      if (!sight.has_empty) sight.error = EPROTO;
      return sight;
    }
    sight.has_empty |= fpdu.payload == 0;
    sight.payload += take({data + beg + kChunkHeader, fpdu.payload}, to, is_truncating);
    beg += fpdu.size;
    reader.take(fpdu);
  }
  if (is_at_border()) {
    sight.has_reached_border = true;
    sight.payload += s_.look_behind_border(to, is_truncating);
  }
  sight.has_partial = end > buffered && beg < end && !is_before_wire && !is_at_border();
  if (sight.payload > 0) return sight;
  if (n == 0 && end > 0) sight.error = EPROTO;
  if (n == 0 && end == 0) sight.has_ended = true;
  if (n < 0 && error != EAGAIN && error != EINTR) sight.error = error;
  return sight;
}

// Nobody is told of those, and the kernel calls the socket readable while they lie there. What
// comes while this runs is for the next call: the kernel tells of it by an edge of its own.
int UserStream::Scan::drop_empty() {
  for (size_t most = bytes_queued(fd_) + s_.inbox_.buffered(); most > 0;) {
    size_t dropped = 0;
    if (const int e = drop_some(dropped); e != 0) return e;
    s_.note_fpdu_read();
    if (dropped == 0) return 0;
    most -= std::min(most, dropped);
  }
  return 0;
}

int UserStream::Scan::drop_some(size_t& dropped) {
  Rx& rx = s_.rx_;
  Inbox& inbox = rx.inbox;
  rx.counted_queue = Rx::kUncounted;
  const uint32_t buffered = inbox.buffered();
  if (data_ == nullptr) return ENOBUFS;
  if (buffered > 0) std::memcpy(data_, inbox.unparsed(s_.arena_).data(), buffered);
  const ssize_t n =
      base::sys.recv(fd_, data_ + buffered, capacity_ - buffered, MSG_PEEK | MSG_DONTWAIT);
  const size_t end = buffered + static_cast<size_t>(std::max<ssize_t>(n, 0));
  int result = 0;
  while (result == 0 && !s_.is_border(s_.rx_.msn)) {
    const Bytes left(data_ + dropped, end - dropped);
    const Fpdu fpdu = s_.reader().look(left);
    if (fpdu.is(Verdict::kControl)) {
      result = s_.take_control(fd_, left.first(fpdu.size));
      if (result != 0 && result != EPROTOTYPE) return result;
    } else if (fpdu.is(Verdict::kChunk) && fpdu.payload == 0) {
      if (s_.r_.has_crc) s_.count_crc();
      s_.advance(fpdu);
    } else {
      break;
    }
    dropped += fpdu.size;
  }
  const auto of_buffer = static_cast<uint32_t>(std::min<size_t>(buffered, dropped));
  inbox.beg += of_buffer;
  // What was read with the marker is plain.
  if (result == EPROTOTYPE) inbox.left = inbox.buffered();
  for (size_t left = dropped - of_buffer; left > 0;) {
    const ssize_t taken = base::sys.recv(fd_, data_, left, MSG_TRUNC | MSG_DONTWAIT);
    if (taken <= 0) return s_.fail_lost(fd_, "bytes known to be queued are gone");
    left -= static_cast<size_t>(taken);
    rx.queued -= std::min(rx.queued, static_cast<uint32_t>(taken));
  }
  return result;
}

int UserStream::Scan::swallow() {
  Rx& rx = s_.rx_;
  uint32_t& end = rx.inbox.end;
  rx.counted_queue = Rx::kUncounted;
  uint8_t* data = rx.inbox.buffer(s_.arena_);
  if (data == nullptr) return ENOBUFS;
  // No more than that FPDU, and not its last byte: it may be whole by now, or its successor may.
  for (;;) {
    const bool has_header = end >= kChunkHeader;
    const uint32_t want = has_header ? fpdu_size(base::load_be16(data)) - 1 : kChunkHeader;
    if (want <= end) return 0;
    const ssize_t n = base::sys.recv(fd_, data + end, want - end, MSG_DONTWAIT);
    if (n <= 0) return 0;
    end += static_cast<uint32_t>(n);
    rx.queued -= std::min(rx.queued, static_cast<uint32_t>(n));
  }
}

// The kernel does the waiting, with its own rules for signals, timeouts and cancellation: a look at
// one byte more than there is, that is not satisfied with less.
int UserStream::Scan::wait_for_more(size_t queued, Time deadline) {
  if (queued + 1 > capacity_) return ENODATA;
  if (deadline != kNever && base::now() >= deadline) return EAGAIN;
  SleepMark& mark = s_.rx_.is_asleep;
  if (deadline != kNever && queued == 0) {
    const int e = sleep_until_ready(mark, fd_, POLLIN, deadline);
    fd_.note_sleep();
    return e;
  }
  const ssize_t n = sleep_in(
      mark, [&] { return base::sys.recv(fd_, data_, queued + 1, MSG_PEEK | MSG_WAITALL); });
  fd_.note_sleep();
  if (n < 0) return errno;
  return static_cast<size_t>(n) > queued ? 0 : ENODATA;
}

// Other bytes lie in front of FPDU `msn`.
bool UserStream::is_border(uint32_t msn) {
  if (inbox_.has_beyond() && msn == inbox_.beyond_fpdu) return true;
  const shm::Segment* segment = segment_.load(std::memory_order_acquire);
  return segment != nullptr && r_.memory.receiving == Way::kWire && segment->has_moved() &&
         msn == InLane(*this)->first_fpdu_in_memory();
}

// Octets that stand for nothing would hide what lies behind them.
void UserStream::prepare_look(int fd) {
  if (is_beyond_next()) {
    reach_beyond();
    if (inbox_.ready.is_empty()) take_octets_beyond(fd);
  }
  if (is_left_behind()) take_counted_octets(fd, 1, {});
}

// The peer has left the memory, and not all that lies there is read. REQUIRES: the receive lease.
bool UserStream::is_left_behind() {
  if (r_.memory.receiving != Way::kMemory || is_beyond_reach()) return false;
  const InLane lane(*this);
  return lane->is_leaving() && lane->size() > 0;
}

// Of those that a poller may need one stays; the others are only in the way.
uint64_t UserStream::octets_before_wire() {
  return inbox_.has_beyond() ? inbox_.beyond_octets : InLane(*this)->octets_unread();
}

// Of what lies behind the last FPDU of a kind: how many bytes were shown or, without `to`, lie
// there.
size_t UserStream::look_behind_border(IoCursor* to, bool is_truncating) {
  const BlockChain& beyond = inbox_.beyond;
  if (inbox_.has_beyond()) return to != nullptr ? show(beyond, *to, is_truncating) : beyond.size();
  return to != nullptr ? look_into_memory(*to, is_truncating) : bytes_in_memory();
}

Io UserStream::peek(int fd, std::span<const iovec> to, int flags) {
  Scan scan(*this, fd, IoCursor(to).left());
  const bool is_nonblocking_call = (flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd);
  const size_t wanted =
      (flags & MSG_WAITALL) != 0 && !is_nonblocking_call ? IoCursor(to).left() : 1;
  Patience patience(fd);
  for (bool has_dropped = false;;) {
    prepare_look(fd);
    IoCursor cursor(to);
    const Scan::Sight sight = scan.look(&cursor, (flags & MSG_TRUNC) != 0);
    const Io seen = Io::ok(static_cast<ssize_t>(sight.payload));
    if (sight.payload >= wanted) return seen;
    if (sight.has_ended) return end_of_stream();
    if (sight.error == EPROTO) {
      // Let the receiver find out, say so to the peer and keep the reason.
      uint8_t byte;
      const iovec one{&byte, 1};
      IoCursor into({&one, 1});
      return Receiver(*this, fd, into, MSG_DONTWAIT).run();
    }
    if (sight.error != 0) return Io::fail(sight.error);
    if (sight.payload == 0 && sight.has_empty) {
      // The kernel would not wait for more while those lie there.
      if (has_dropped && (is_nonblocking_call || patience.is_over())) return Io::fail(EAGAIN);
      const int e = scan.drop_empty();
      if (e != 0) return e == EPROTOTYPE ? peek_turned(fd, to, flags) : Io::fail(e);
      has_dropped = true;
      continue;
    }
    size_t queued = sight.queued;
    if (sight.payload == 0 && sight.has_partial) {
      if (const int e = scan.swallow(); e != 0) return Io::fail(e);
      queued = 0;
    }
    if (is_nonblocking_call) return Io::fail(EAGAIN);
    if (sight.payload > 0 && sight.has_reached_border) {
      // Nobody rings for what comes behind bytes in memory that are not read.
      if (is_ready_now(fd, POLLRDHUP) || patience.is_over()) return seen;
      if (!rest_between_looks(fd) || fd < 0) return seen;
      continue;
    }
    const int e = scan.wait_for_more(queued, patience.deadline());
    fd = still(fd);
    if (e == ENODATA && sight.payload == 0) continue;
    if (e != 0) return sight.payload > 0 ? seen : Io::fail(e);
  }
}

Io UserStream::readable(int fd) {
  const base::KeepErrno keep;
  Hold hold(*this, rx_.lease);
  if (const int e = hold.take(fd, Hold::kReceive, MSG_DONTWAIT); e != 0) {
    keep_error(e);  // that the last holder died is said once
    return Io::ok(0);
  }
  if (!rx_.is_started) {
    const int e = start_receiving(fd, MSG_DONTWAIT);
    if (e == EPROTOTYPE) return Io::fail(e);
    if (e != 0) return Io::ok(0);
  }
  if (rx_.is_drained) [[unlikely]]
    return Io::ok(static_cast<ssize_t>(readable_one_sided(fd)));
  if (is_turned()) [[unlikely]] {
    if (is_state(StreamState::kPlain)) return Io::fail(EPROTOTYPE);
    if (r_.raw.is_rx_plain) return readable_turned(fd);
  }
  if (is_beyond_reach() && go_on_beyond_memory() != 0) return Io::ok(0);
  if (is_next_in_memory(fd) && !is_left_behind())
    return Io::ok(static_cast<ssize_t>(bytes_in_memory()));
  prepare_look(fd);
  return readable_on_wire(fd);
}

// A look copies all that lies there, so it is only for what has come since the last one.
Io UserStream::readable_on_wire(int fd) {
  if (rx_.counted_queue != Rx::kUncounted && bytes_queued(fd) == rx_.counted_queue)
    return Io::ok(rx_.counted_payload);
  const uint32_t buffered = inbox_.buffered();
  for (size_t room = 0;;) {
    Scan scan(*this, fd, room);
    const Scan::Sight sight = scan.look(nullptr);
    if (room == 0 && sight.queued + buffered >= Arena::kBlockSize) {
      room = bytes_queued(fd) + buffered;
      continue;
    }
    if (sight.payload == 0 && sight.has_control && scan.drop_empty() == EPROTOTYPE)
      return readable_turned(fd);
    const bool is_plain_sight = sight.error == 0 && !sight.has_empty && !inbox_.has_beyond() &&
                                segment_.load(std::memory_order_relaxed) == nullptr;
    rx_.counted_queue = is_plain_sight ? static_cast<uint32_t>(sight.queued) : Rx::kUncounted;
    rx_.counted_payload = static_cast<uint32_t>(sight.payload);
    // A program that is told of nothing waits for an edge. Part of an FPDU must not be left where
    // it may keep the kernel from taking the rest.
    if (sight.payload == 0 && sight.has_partial && !sight.has_empty) scan.swallow();
    return Io::ok(static_cast<ssize_t>(sight.payload));
  }
}

bool UserStream::is_recv_ready(int fd) {
  const base::KeepErrno keep;
  Hold hold(*this, rx_.lease);
  if (const int e = hold.take(fd, Hold::kReceive, MSG_DONTWAIT); e != 0) {
    keep_error(e);
    return e == ECONNRESET;
  }
  if (rx_.error != 0 || is_state(StreamState::kFailed)) return true;
  if (!rx_.is_started) {
    const int e = start_receiving(fd, MSG_DONTWAIT);
    if (e == EPROTOTYPE) return is_ready_now(fd, POLLIN);
    if (e != 0) return e != EAGAIN;
  }
  if (rx_.is_drained) [[unlikely]]
    return is_recv_ready_one_sided(fd);
  if (is_turned()) [[unlikely]] {
    if (is_state(StreamState::kPlain)) return is_ready_now(fd, POLLIN);
    if (r_.raw.is_rx_plain) return is_recv_ready_turned(fd);
  }
  if (is_beyond_reach() && go_on_beyond_memory() != 0) return true;
  if (is_next_in_memory(fd) && !is_left_behind()) return is_ready_in_memory(fd);
  prepare_look(fd);
  const auto wanted = static_cast<size_t>(rx_.low_water);
  Scan scan(*this, fd, wanted);
  Scan::Sight sight = scan.look_for(wanted);
  if (sight.payload == 0 && sight.has_empty) {
    if (const int e = scan.drop_empty(); e != 0) {
      if (e == EPROTOTYPE) return is_recv_ready_turned(fd);
      rx_.error = e;
      return true;
    }
    if (is_at_memory()) {
      begin_receiving_in_memory();
      return is_ready_in_memory(fd);
    }
    sight = scan.look_for(wanted);
  }
  if (sight.has_ended || sight.error != 0) return true;
  if (sight.payload >= wanted) return true;
  // What cannot grow any more need not reach the mark.
  if (sight.payload > 0 && is_ready_now(fd, POLLRDHUP)) return true;
  if (sight.payload == 0 && sight.has_partial && !sight.has_empty) scan.swallow();
  return false;
}

}  // namespace ddpsock::engine
