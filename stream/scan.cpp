// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/scan.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <optional>

#include "base/sys.h"
#include "stream/failure.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/looks.h"
#include "stream/raw.h"
#include "stream/raw_message.h"
#include "stream/rx.h"
#include "stream/sleep.h"
#include "stream/watching.h"

namespace ddpsock::engine {

using Verdict = Fpdu::Verdict;

Scan::Scan(Connection& c, int fd, size_t payload) : c_(c), fd_(c, fd) {
  constexpr size_t kFitsBlock = Blocks::kBlockSize / 2;
  if (payload <= kFitsBlock) {
    data_ = block_.take(c.arena.blocks);
    return;
  }
  // Room for twice the payload: small chunks carry that much overhead.
  capacity_ = std::min(2 * payload + Blocks::kBlockSize, kMostBytes);
  void* p = mmap(nullptr, capacity_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) data_ = static_cast<uint8_t*>(p);
}

Scan::~Scan() {
  if (!block_.is_taken() && data_ != nullptr) munmap(data_, capacity_);
}

size_t Scan::take(Bytes bytes, IoCursor* to, bool is_truncating) {
  if (to == nullptr) return bytes.size();
  const size_t n = std::min(bytes.size(), to->left());
  is_truncating ? to->skip(n) : to->put(bytes.data(), n);
  return n;
}

// `fpdu`, in front of `bytes`, is a message of the way back to plain TCP that recv() will obey.
std::optional<RawMessage> Scan::message(Bytes bytes, const Fpdu& fpdu, uint32_t msn) const {
  if (!fpdu.is(Verdict::kControl) || !is_raw_message(c_, bytes.data())) return std::nullopt;
  const Bytes whole = bytes.first(fpdu.size);
  if (c_.r.has_crc && !ChunkReader::is_intact(whole)) return std::nullopt;
  const auto message = decode_raw(mpa::ulpdu_of(whole), msn);
  const bool is_refused = message && message->kind == DDPSOCK_RAW_MARK &&
                          (message->number > c_.r.raw.asked_bytes || c_.r.is_one_sided);
  return is_refused ? std::nullopt : message;
}

Scan::Found Scan::look(IoCursor* to, bool is_truncating) {
  return look_for(SIZE_MAX, to, is_truncating);
}

Scan::Found Scan::look_for(size_t wanted, IoCursor* to, bool is_truncating) {
  const Rx& rx = c_.rx;
  Found sight;
  // What was sent in memory, and FPDUs behind it: between them lie octets.
  const bool is_before_wire = c_.is_beyond_next() || is_left_behind(c_);
  const Inbox& inbox = rx.inbox;
  if (!inbox.ready.is_empty()) [[unlikely]]
    sight.payload = to != nullptr ? show(c_, inbox.ready, *to, is_truncating) : inbox.ready.size();
  if (is_before_wire) sight.payload += look_behind_border(c_, to, is_truncating);
  if (data_ == nullptr) {
    sight.error = sight.payload > 0 ? 0 : ENOBUFS;
    return sight;
  }
  // The buffer's bytes, then the kernel's: one run of bytes in the borrowed memory.
  uint8_t* const data = data_;
  uint32_t end = 0;
  if (inbox.block != Blocks::kNoBlock) {
    sight.payload += take(inbox.front(c_.arena.blocks), to, is_truncating);
    const Bytes unparsed = inbox.unparsed(c_.arena.blocks);
    end = static_cast<uint32_t>(unparsed.size());
    std::memcpy(data, unparsed.data(), end);
  }
  const uint32_t buffered = end;
  const uint32_t kept = inbox.has_kept_byte ? 1 : 0;
  // The kept byte belongs to the FPDU in front: it is looked over.
  // A byte may come with every FPDU; one is in any that is whole.
  const size_t most =
      wanted <= 1 ? std::min<size_t>(capacity_ - end, kMaxFpdu + kept) : capacity_ - end;
  const ssize_t n = base::sys.recv(fd_, data + end, most, MSG_PEEK | MSG_DONTWAIT);
  const int error = errno;
  if (n > 0) sight.queued = static_cast<size_t>(n);
  sight.has_more = sight.queued == capacity_ - end;
  if (n > static_cast<ssize_t>(kept)) {
    if (kept != 0) std::memmove(data + end, data + end + 1, static_cast<size_t>(n) - 1);
    end += static_cast<uint32_t>(n) - kept;
  }
  uint32_t beg =
      is_before_wire ? static_cast<uint32_t>(std::min<uint64_t>(octets_before_wire(c_), end)) : 0;
  ChunkReader reader = c_.reader();
  bool is_border_ahead = !is_before_wire;
  const auto is_at_border = [&] { return is_border_ahead && is_border(c_, reader.msn()); };
  while ((to == nullptr || to->left() > 0) && sight.payload < wanted) {
    if (is_at_border()) {
      sight.has_reached_border = true;
      is_border_ahead = !is_wire_behind_border(c_);  // before what lies there is looked at
      sight.payload += look_behind_border(c_, to, is_truncating);
      if (is_border_ahead) break;
      beg += static_cast<uint32_t>(std::min<uint64_t>(octets_before_wire(c_), end - beg));
      continue;
    }
    const Fpdu fpdu = reader.look({data + beg, end - beg});
    if (fpdu.is(Verdict::kNoHeader) || fpdu.is(Verdict::kPartial)) break;
    if (!fpdu.is(Verdict::kChunk)) {
      // For recv() to deal with: it may have something to report. But bytes behind it come too.
      if (sight.payload > 0) {
        const auto said = message({data + beg, end - beg}, fpdu, reader.msn());
        if (!said) return sight;
        sight.has_message = true;
        beg += fpdu.size;
        if (said->kind != DDPSOCK_RAW_MARK) {
          reader = {reader.msn() + 1, 0, c_.r.has_crc, true};
          continue;
        }
        beg += std::min(said->number, end - beg);
        sight.payload += take({data + beg, end - beg}, to, is_truncating);
        return sight;
      }
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
  sight.has_partial = end > buffered && beg < end && !is_before_wire && !sight.has_reached_border;
  if (sight.payload > 0) return sight;
  if (n == 0 && end > 0) sight.error = EPROTO;
  if (n == 0 && end == 0) sight.has_ended = true;
  if (n < 0 && error != EAGAIN && error != EINTR) sight.error = error;
  return sight;
}

// Nobody is told of those, and the kernel calls the socket readable while they lie there. What
// comes while this runs is for the next call: the kernel tells of it by an edge of its own.
int Scan::drop_empty() {
  for (size_t most = bytes_queued(fd_) + c_.inbox.buffered(); most > 0;) {
    size_t dropped = 0;
    if (const int e = drop_some(dropped); e != 0) return e;
    note_fpdu_read(c_);
    if (dropped == 0) return 0;
    most -= std::min(most, dropped);
  }
  return 0;
}

int Scan::drop_some(size_t& dropped) {
  Rx& rx = c_.rx;
  Inbox& inbox = rx.inbox;
  rx.count.forget();
  const uint32_t buffered = inbox.buffered();
  if (data_ == nullptr) return ENOBUFS;
  if (buffered > 0) std::memcpy(data_, inbox.unparsed(c_.arena.blocks).data(), buffered);
  const ssize_t n =
      base::sys.recv(fd_, data_ + buffered, capacity_ - buffered, MSG_PEEK | MSG_DONTWAIT);
  const size_t end = buffered + static_cast<size_t>(std::max<ssize_t>(n, 0));
  int result = 0;
  while (result == 0 && !is_border(c_, c_.rx.msn)) {
    const Bytes left(data_ + dropped, end - dropped);
    const Fpdu fpdu = c_.reader().look(left);
    if (fpdu.is(Verdict::kControl)) {
      result = take_control(c_, fd_, left.first(fpdu.size));
      if (result != 0 && result != EPROTOTYPE) return result;
    } else if (fpdu.is(Verdict::kChunk) && fpdu.payload == 0) {
      if (c_.r.has_crc) c_.count_crc();
      if (is_watched()) tell_received(c_, left.first(fpdu.size));
      c_.advance(fpdu);
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
    if (taken <= 0) return fail_lost(c_, fd_, "bytes known to be queued are gone");
    left -= static_cast<size_t>(taken);
    rx.queued -= std::min(rx.queued, static_cast<uint32_t>(taken));
  }
  return result;
}

// The kernel does the waiting, with its own rules for signals, timeouts and cancellation.
int Scan::wait_for_any(Time deadline) {
  if (deadline != kNever && base::now() >= deadline) return EAGAIN;
  SleepMark& mark = c_.rx.is_asleep;
  int error = 0;
  if (deadline != kNever) {
    error = sleep_until_ready(mark, fd_, POLLIN, deadline);
  } else {
    uint8_t byte;
    if (sleep_in(mark, [&] { return base::sys.recv(fd_, &byte, 1, MSG_PEEK); }) < 0) error = errno;
  }
  fd_.note_sleep();
  return error;
}

int take_partial(Connection& c, int fd) {
  Rx& rx = c.rx;
  uint32_t& end = rx.inbox.end;
  rx.count.forget();
  uint8_t* data = rx.inbox.buffer(c.arena.blocks);
  if (data == nullptr) return ENOBUFS;
  // No more than that FPDU, and not its last byte: it may be whole by now, or its successor may.
  for (;;) {
    const bool has_header = end >= kChunkHeader;
    const uint32_t want = has_header ? fpdu_size(base::load_be16(data)) - 1 : kChunkHeader;
    if (want <= end) return 0;
    const ssize_t n = base::sys.recv(fd, data + end, want - end, MSG_DONTWAIT);
    if (n <= 0) return 0;
    end += static_cast<uint32_t>(n);
    rx.queued -= std::min(rx.queued, static_cast<uint32_t>(n));
  }
}

}  // namespace ddpsock::engine
