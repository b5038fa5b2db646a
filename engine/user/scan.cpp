// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/scan.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/receiver.h"

namespace ddpsock::engine {

UserStream::Scan::Scan(UserStream& stream, int fd, size_t payload) : s_(stream), fd_(fd) {
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
    s_.arena_.free_block(block_);
  } else if (data_ != nullptr) {
    munmap(data_, capacity_);
  }
}

size_t UserStream::Scan::take(const uint8_t* p, size_t n, IoCursor* to, bool is_truncating) {
  if (to == nullptr) return n;
  n = std::min(n, to->left());
  if (is_truncating) {
    to->skip(n);
  } else {
    to->put(p, n);
  }
  return n;
}

UserStream::Scan::Sight UserStream::Scan::look(IoCursor* to, bool is_truncating) {
  return look_from(to, is_truncating, true, {});
}

UserStream::Scan::Sight UserStream::Scan::look_behind_front(IoCursor* to, bool is_truncating,
                                                            Span fpdus) {
  return look_from(to, is_truncating, false, fpdus);
}

UserStream::Scan::Sight UserStream::Scan::look_from(IoCursor* to, bool is_truncating,
                                                    bool has_front, Span fpdus) {
  const Rx& rx = s_.rx_;
  Sight sight;
  if (data_ == nullptr) {
    sight.error = ENOBUFS;
    return sight;
  }
  // The buffer's bytes, then the kernel's: one run of bytes in the borrowed memory.
  uint8_t* const data = data_;
  uint32_t end = 0;
  if (rx.block != Arena::kNoBlock) {
    const uint8_t* buffered = s_.arena_.block_data(rx.block);
    if (rx.left > 0 && has_front)
      sight.payload += take(buffered + rx.beg, rx.left, to, is_truncating);
    const uint32_t front = rx.left > 0 ? rx.left + rx.skip : 0;
    end = rx.end - rx.beg - front;
    std::memcpy(data, buffered + rx.beg + front, end);
  }
  const uint32_t buffered = end;
  const uint32_t kept = rx.has_kept_byte ? 1 : 0;
  // The kept byte belongs to the FPDU in front: it is looked over.
  const ssize_t n = base::sys.recv(fd_, data + end, capacity_ - end, MSG_PEEK | MSG_DONTWAIT);
  const int error = errno;
  if (n > 0) sight.queued = static_cast<size_t>(n);
  if (n > static_cast<ssize_t>(kept)) {
    if (kept != 0) std::memmove(data + end, data + end + 1, static_cast<size_t>(n) - 1);
    end += static_cast<uint32_t>(n) - kept;
  }
  uint32_t beg = 0;
  uint32_t msn = rx.msn;
  while (end - beg >= kChunkHeader && (to == nullptr || to->left() > 0) &&
         (!fpdus.end || msn != *fpdus.end)) {
    const uint32_t ulpdu = base::load_be16(data + beg);
    const uint32_t size = fpdu_size(ulpdu);
    // Anything but a good chunk is for recv() to deal with: it has something to report.
    if (end - beg < size) break;
    const uint32_t covered = size - MPA_CRC_SIZE;
    if (!is_chunk(data + beg, msn) || rx.mo != 0 ||
        (s_.r_.has_crc &&
         base::crc32c({data + beg, covered}) != base::load_le32(data + beg + covered))) {
      if (sight.payload == 0) sight.error = EPROTO;
      return sight;
    }
    sight.has_bells |= ulpdu == DDP_UNTAGGED_HEADER_SIZE;
    if (!fpdus.first || !shm::is_before(msn, *fpdus.first))
      sight.payload +=
          take(data + beg + kChunkHeader, ulpdu - DDP_UNTAGGED_HEADER_SIZE, to, is_truncating);
    beg += size;
    ++msn;
  }
  sight.next_fpdu = msn;
  sight.has_partial = end > buffered && beg < end;
  if (sight.payload > 0) return sight;
  if (n == 0 && end > 0) sight.error = EPROTO;
  if (n == 0 && end == 0) sight.has_ended = true;
  if (n < 0 && error != EAGAIN && error != EINTR) sight.error = error;
  return sight;
}

int UserStream::Scan::swallow() {
  Rx& rx = s_.rx_;
  if (rx.block == Arena::kNoBlock) {
    rx.block = s_.arena_.allocate_block();
    if (rx.block == Arena::kNoBlock) return ENOBUFS;
    rx.beg = rx.end = 0;
  }
  uint8_t* data = s_.arena_.block_data(rx.block);
  std::memmove(data, data + rx.beg, rx.end - rx.beg);
  rx.end -= rx.beg;
  rx.beg = 0;
  // No more than that FPDU, and not its last byte: it may be whole by now, or its successor may.
  for (;;) {
    const bool has_header = rx.end >= kChunkHeader;
    const uint32_t want = has_header ? fpdu_size(base::load_be16(data)) - 1 : kChunkHeader;
    if (want <= rx.end) return 0;
    const ssize_t n = base::sys.recv(fd_, data + rx.end, want - rx.end, MSG_DONTWAIT);
    if (n <= 0) return 0;
    rx.end += static_cast<uint32_t>(n);
    rx.queued -= std::min(rx.queued, static_cast<uint32_t>(n));
  }
}

// The kernel does the waiting, with its own rules for signals, timeouts and cancellation: a look at
// one byte more than there is, that is not satisfied with less.
int UserStream::Scan::wait_for_more(size_t queued) {
  if (queued + 1 > capacity_) return ENODATA;
  s_.rx_.is_asleep = true;
  const ssize_t n = base::sys.recv(fd_, data_, queued + 1, MSG_PEEK | MSG_WAITALL);
  s_.rx_.is_asleep = false;
  if (n < 0) return errno;
  return static_cast<size_t>(n) > queued ? 0 : ENODATA;
}

Io UserStream::peek(int fd, std::span<const iovec> to, int flags) {
  Scan scan(*this, fd, IoCursor(to).left());
  const bool is_nonblocking_call = (flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd);
  const size_t wanted =
      (flags & MSG_WAITALL) != 0 && !is_nonblocking_call ? IoCursor(to).left() : 1;
  for (;;) {
    IoCursor cursor(to);
    const Scan::Sight sight = scan.look(&cursor, (flags & MSG_TRUNC) != 0);
    const Io seen = Io::ok(static_cast<ssize_t>(sight.payload));
    if (sight.payload >= wanted || sight.has_ended) return seen;
    if (sight.error == EPROTO) {
      // Let the receiver find out, say so to the peer and keep the reason.
      uint8_t byte;
      const iovec one{&byte, 1};
      return Receiver(*this, fd, {&one, 1}, MSG_DONTWAIT).run();
    }
    if (sight.error != 0) return Io::fail(sight.error);
    if (sight.payload == 0 && sight.has_bells) {
      // Nothing comes of those, and the kernel would not wait for more while they lie there.
      Receiver(*this, fd, {}, MSG_DONTWAIT).refresh();
      continue;
    }
    size_t queued = sight.queued;
    if (sight.payload == 0 && sight.has_partial) {
      if (const int e = scan.swallow(); e != 0) return Io::fail(e);
      queued = 0;
    }
    if (is_nonblocking_call) return Io::fail(EAGAIN);
    const int e = scan.wait_for_more(queued);
    if (e == ENODATA && sight.payload == 0) continue;
    if (e != 0) return sight.payload > 0 ? seen : Io::fail(e);
  }
}

Io UserStream::readable(int fd) {
  const KeepErrno keep;
  Hold hold(*this, rx_.lease);
  if (const int e = hold.take(fd, Hold::kReceive, MSG_DONTWAIT); e != 0) return Io::ok(0);
  if (!rx_.is_started) {
    const int e = start_receiving(fd, MSG_DONTWAIT);
    if (e == EPROTOTYPE) return Io::fail(e);
    if (e != 0) return Io::ok(0);
  }
  if (rx_.is_drained) [[unlikely]]
    return Io::ok(static_cast<ssize_t>(readable_one_sided(fd)));
  const size_t beside = bytes_beside_wire();
  if (const auto lane = reading_lane(); lane && !lane->is_wire_in_use(rx_.msn))
    return Io::ok(static_cast<ssize_t>(rx_.left + beside));
  Scan scan(*this, fd, bytes_queued(fd));
  const Scan::Sight sight = scan.look(nullptr);
  // A program that is told of nothing waits for an edge. Part of an FPDU must not be left where it
  // may keep the kernel from taking the rest.
  if (beside + sight.payload == 0 && sight.has_partial) scan.swallow();
  return Io::ok(static_cast<ssize_t>(beside + sight.payload));
}

bool UserStream::is_recv_ready(int fd) {
  const KeepErrno keep;
  Hold hold(*this, rx_.lease);
  if (hold.take(fd, Hold::kReceive, MSG_DONTWAIT) != 0) return false;
  if (rx_.error != 0 || is_state(StreamState::kFailed)) return true;
  if (!rx_.is_started) {
    if (const int e = start_receiving(fd, MSG_DONTWAIT); e != 0) return e != EAGAIN;
  }
  if (rx_.is_drained) [[unlikely]]
    return is_recv_ready_one_sided(fd);
  if (const auto lane = reading_lane(); lane && !lane->is_wire_in_use(rx_.msn))
    return is_ready_beside_lane(fd);
  if (bytes_beside_wire() > 0) return true;
  Scan scan(*this, fd, static_cast<size_t>(rx_.low_water));
  Scan::Sight sight = scan.look(nullptr);
  if (sight.payload == 0 && sight.has_bells) {
    Receiver(*this, fd, {}, MSG_DONTWAIT).refresh();
    if (bytes_beside_wire() > 0) return true;
    sight = scan.look(nullptr);
  }
  if (sight.has_ended || sight.error != 0) return true;
  if (sight.payload >= static_cast<size_t>(rx_.low_water)) return true;
  // What cannot grow any more need not reach the mark.
  if (sight.payload > 0 && is_ready_now(fd, POLLRDHUP)) return true;
  if (sight.payload == 0 && sight.has_partial) scan.swallow();
  return false;
}

}  // namespace ddpsock::engine
