// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving where the stream lies in shared memory. The ring comes first, FPDUs where it has none;
// bells are FPDUs without payload. Whenever the call ends, bytes that are left in the ring have a
// bell that is unread, at least the last four bytes of it (doc/design.md decision 3, I1): the end
// of a bell is read only when the lane was found empty after it was armed.
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "base/spin.h"
#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/receiver.h"
#include "engine/user/scan.h"

namespace ddpsock::engine {
namespace {

constexpr uint32_t kBell = chunk_size(0);
// Taken at a time, so that a writer that waits for room goes on before all is copied.
constexpr size_t kPiece = 64 * 1024;
constexpr uint32_t kMostBells = 64;  // more than this peer could have rung are read in turns

}  // namespace

bool UserStream::has_bytes_left() {
  if (rx_.left > 0 || has_residue()) return true;
  const auto lane = reading_lane();
  return lane && lane->size() > 0;
}

bool UserStream::Receiver::take_from_lane() {
  bool has_taken = false;
  while (to_.left() > 0) {
    const auto bytes = lane_->next(rx_.msn, std::min(to_.left(), kPiece));
    if (bytes.is_corrupt) {
      error_ = s_.fail_lost(fd_, "the peer wrote nonsense into the shared memory");
      break;
    }
    if (bytes.size == 0) break;
    put(bytes.data, bytes.size);
    s_.r_.counters.bytes_received.add(bytes.size);
    if (lane_->take(bytes.size, base::current_cpu())) wake_writer();
    has_taken = true;
  }
  return has_taken;
}

// Not for every byte of room: the writer shall find work for more than a moment.
void UserStream::Receiver::wake_writer() {
  if (lane_->size() > shm::kRingSize / 2) return;
  std::atomic<uint32_t>& futex = lane_->room_futex();
  futex.store(0, std::memory_order_relaxed);
  const int saved = errno;
  syscall(SYS_futex, &futex, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  errno = saved;
}

// What a process of this family took out of the lane when it left it.
bool UserStream::Receiver::take_residue() {
  const bool is_behind = rx_.residue_fpdu != 0 && shm::is_before(rx_.msn, rx_.residue_fpdu);
  const uint32_t end = is_behind ? rx_.residue_split : rx_.residue_end;
  bool has_taken = false;
  while (rx_.residue_beg < end && to_.left() > 0) {
    const uint32_t at = rx_.residue_beg;
    const auto offset = static_cast<uint32_t>(at % Arena::kBlockSize);
    const auto n =
        static_cast<uint32_t>(std::min({size_t{end - at}, Arena::kBlockSize - offset, to_.left()}));
    put(s_.arena_.block_data(rx_.residue_blocks[at / Arena::kBlockSize]) + offset, n);
    s_.r_.counters.bytes_received.add(n);
    rx_.residue_beg += n;
    has_taken = true;
  }
  return has_taken;
}

bool UserStream::Receiver::is_bell_in_front() const {
  const uint8_t* p = data_ + beg_;
  return base::load_be16(p) == DDP_UNTAGGED_HEADER_SIZE && is_data(p);
}

ssize_t UserStream::Receiver::pull_beside_lane() {
  const bool may_wait = (flags_ & MSG_DONTWAIT) == 0 && wants_more();
  const int flags = may_wait ? 0 : MSG_DONTWAIT;
  if (lane_ && (end_ - beg_ < kChunkHeader || is_bell_in_front()))
    return await_bell(flags, may_wait);
  return pull_no_further(flags);
}

// The peer hands an FPDU over whole. Nothing beyond it is read: a bell may follow, which stands for
// bytes that lie elsewhere.
ssize_t UserStream::Receiver::pull_no_further(int flags) {
  const uint32_t have = end_ - beg_;
  if (have < kChunkHeader) return read(kChunkHeader - have, flags);
  const uint8_t* p = data_ + beg_;
  const uint32_t ulpdu = base::load_be16(p);
  const uint32_t rest = fpdu_size(ulpdu) - have;
  const uint32_t payload = is_data(p) ? ulpdu - DDP_UNTAGGED_HEADER_SIZE : 0;
  if (payload <= to_.left()) return read(rest, flags);
  return rest > 1 ? read(rest - 1, flags) : keep_last_byte(flags);
}

// The lane is empty. Asks for a bell, takes those that are stale, then the kernel has the word, and
// the sleep.
ssize_t UserStream::Receiver::await_bell(int flags, bool may_wait) {
  if (may_wait && spin_for_bytes()) return 1;
  const uint32_t stale = lane_->bells_unread();
  if (!lane_->arm(rx_.msn)) return 1;
  const uint32_t have = end_ - beg_;
  const bool is_wire_in_use = lane_->is_wire_in_use(rx_.msn);
  if (have >= kChunkHeader) {
    // A bell but for its end.
    return read(kBell - have, stale > 1 ? MSG_DONTWAIT : flags);
  }
  if (stale > 0 && !is_wire_in_use) {
    const ssize_t n = read(std::min(stale, kMostBells) * kBell - have, MSG_DONTWAIT);
    if (n >= 0 || errno != EAGAIN || error_ != 0) return n;
  }
  return read(kChunkHeader - have, flags);
}

bool UserStream::Receiver::spin_for_bytes() {
  if (is_nonblocking(fd_)) return false;
  base::Spin& spin = base::Spin::mine();
  const uint32_t cpu = lane_->peer_cpu();
  const auto has_bytes = [&] { return !lane_->is_empty(rx_.msn); };
  if (spin.is_beside(cpu)) return has_spun_ = spin.by_yielding(has_bytes);
  if (!spin.is_worth(cpu, cpu)) return false;
  has_spun_ = spin.until(has_bytes);
  return has_spun_;
}

// The kernel has no more: an end, an error, or nothing now. What the peer published before that
// comes first; true if there is no such thing.
bool UserStream::Receiver::on_wire_end(ssize_t n) {
  const bool has_failed = n < 0 && error_ != EAGAIN && error_ != EINTR;
  if (has_failed) {
    // A peer that was killed between two spins leaves a bell unread, which makes its kernel reset
    // the connection. It had read all we sent: without shared memory this were an end.
    if (error_ == ECONNRESET && s_.was_read_to_end()) error_ = 0;
    s_.break_memory();
  }
  if (lane_->is_empty(rx_.msn)) return true;
  if (has_failed) {
    rx_.error = error_;
    take_from_lane();
    error_ = 0;
    return true;
  }
  if (error_ == EINTR) return true;
  error_ = 0;
  return false;
}

// A thread that comes back without having slept leaves the bell where it is: the next bytes then
// need none.
bool UserStream::Receiver::may_bell_lie() const {
  return has_spun_ || s_.lazy_thread_.load(std::memory_order_relaxed) == base::thread_id();
}

// So that the kernel does not call the socket readable for the sake of a bell that is stale.
void UserStream::Receiver::settle() {
  if (!lane_->is_empty(rx_.msn)) return;
  const uint32_t stale = std::min(lane_->bells_unread(), kMostBells);
  if (!lane_->arm(rx_.msn) || stale == 0) return;
  if (lane_->is_wire_in_use(rx_.msn)) return take_bells_singly(stale);
  if (read(stale * kBell - (end_ - beg_), MSG_DONTWAIT) <= 0) return;
  for (uint32_t i = 0; i < stale && look() == Front::kVerified && rx_.left == 0; ++i) continue;
}

// Where an FPDU may come before a bell: of that nothing but its header is taken.
void UserStream::Receiver::take_bells_singly(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t have = end_ - beg_;
    if (have < kChunkHeader && read(kChunkHeader - have, MSG_DONTWAIT) <= 0) return;
    if (end_ - beg_ < kChunkHeader || !is_bell_in_front()) return;
    if (read(kBell - (end_ - beg_), MSG_DONTWAIT) <= 0) return;
    if (look() != Front::kVerified || rx_.left > 0) return;
  }
}

// For calls that deliver nothing. True: the lane has bytes.
bool UserStream::Receiver::refresh() {
  got_ = 0;
  settle();
  finish();
  return lane_->size() > 0;
}

// In the order in which recv() would deliver: the rest of an FPDU, the ring up to a barrier, FPDUs,
// the ring behind it.
UserStream::LaneSight UserStream::look_into_lane(int fd, std::span<const iovec> to,
                                                 bool is_truncating) {
  IoCursor cursor(to);
  LaneSight sight{.room = cursor.left()};
  const auto lane = *reading_lane();
  const auto show = [&](const uint8_t* p, size_t n) {
    n = std::min(n, cursor.left());
    is_truncating ? cursor.skip(n) : cursor.put(p, n);
    sight.seen += n;
  };
  const auto show_ring = [&](size_t from, size_t end) {
    while (from < end) {
      const auto bytes = lane.at(from, end - from);
      show(bytes.data, bytes.size);
      from += bytes.size;
    }
  };
  if (rx_.left > 0) show(arena_.block_data(rx_.block) + rx_.beg, rx_.left);
  const size_t before = lane.size_before(rx_.msn);
  show_ring(0, before);
  if (!lane.is_wire_in_use(rx_.msn) || cursor.left() == 0) return sight;
  const Scan::Sight wire = Scan(*this, fd, cursor.left()).look_behind_front(&cursor, is_truncating);
  sight.seen += wire.payload;
  sight.error = wire.error;
  sight.has_ended = wire.has_ended;
  show_ring(before, lane.size_before(wire.next_fpdu));
  return sight;
}

Io UserStream::peek_beside_lane(int fd, std::span<const iovec> to, int flags) {
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
  const Time deadline = may_wait ? deadline_of(fd, SO_RCVTIMEO) : Time{};
  for (bool is_first = true;; is_first = false) {
    const LaneSight sight = look_into_lane(fd, to, (flags & MSG_TRUNC) != 0);
    const size_t wanted = (flags & MSG_WAITALL) != 0 && may_wait ? sight.room : 1;
    const Io seen = Io::ok(static_cast<ssize_t>(sight.seen));
    if (sight.seen >= wanted) return seen;
    if (sight.seen == 0 && sight.error == EPROTO) {
      // Let the receiver find out, say so to the peer and keep the reason.
      uint8_t byte;
      const iovec one{&byte, 1};
      return Receiver(*this, fd, {&one, 1}, MSG_DONTWAIT).run();
    }
    if (sight.seen == 0 && sight.error != 0) return Io::fail(sight.error);
    if (sight.seen == 0 && sight.has_ended) return seen;
    if (sight.seen == 0 && !reading_lane()->is_wire_in_use(rx_.msn)) {
      if (Receiver(*this, fd, {}, MSG_DONTWAIT).refresh()) continue;
      uint8_t byte;
      rx_.is_asleep = true;
      const ssize_t n = base::sys.recv(fd, &byte, 1, MSG_PEEK | (may_wait ? 0 : MSG_DONTWAIT));
      rx_.is_asleep = false;
      if (reading_lane()->size() > 0) continue;
      if (n <= 0) return n == 0 ? seen : Io::fail(errno);
      if (is_first) continue;
    } else if (is_ready_now(fd, POLLRDHUP)) {
      if (!is_first) return seen;
      continue;
    }
    if (!may_wait || base::now() >= deadline) return sight.seen > 0 ? seen : Io::fail(EAGAIN);
    // Part of what is wanted is there, so the kernel calls the socket readable all the while.
    if (base::sys.poll(nullptr, 0, 1) < 0) return sight.seen > 0 ? seen : Io::fail(errno);
  }
}

// Bytes that recv() could return without asking the kernel. REQUIRES: the receive lease.
size_t UserStream::bytes_beside_wire() {
  const auto lane = reading_lane();
  return (lane ? lane->size() : 0) + (rx_.residue_end - rx_.residue_beg);
}

bool UserStream::is_ready_beside_lane(int fd) {
  const auto mark = static_cast<size_t>(rx_.low_water);
  for (bool is_first = true;; is_first = false) {
    const size_t have = rx_.left + bytes_beside_wire();
    if (have >= mark) return true;
    if (have > 0) return is_ready_now(fd, POLLRDHUP);
    if (Receiver(*this, fd, {}, MSG_DONTWAIT).refresh()) continue;
    uint8_t byte;
    const ssize_t n = base::sys.recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (bytes_beside_wire() > 0) continue;
    if (n <= 0) return n == 0 || errno != EAGAIN;
    if (!is_first) return false;  // a bell that is late
  }
}

Glance UserStream::glance() const {
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  const auto state = r_.memory.state.load(std::memory_order_relaxed);
  if (segment == nullptr || (state != MemoryState::kJoined && state != MemoryState::kOffered))
    return {.may_be_in_memory = r_.wants_memory &&
                                (state == MemoryState::kUnasked || state == MemoryState::kInvited)};
  const bool is_connected = r_.memory.end == shm::End::kConnected;
  const shm::Lane& in =
      segment->lane_from(is_connected ? shm::End::kAccepted : shm::End::kConnected);
  const shm::Lane& out = segment->lane_from(r_.memory.end);
  const uint64_t tail = in.writer.tail.load(std::memory_order_acquire);
  const uint64_t queued = out.writer.tail.load(std::memory_order_relaxed) -
                          out.reader.head.load(std::memory_order_relaxed);
  return {.may_be_in_memory = true,
          .is_in_memory = true,
          .has_bytes = (tail & ~shm::kClosedBit) != in.reader.head.load(std::memory_order_relaxed),
          .has_room = out.writer.is_on_wire.load(std::memory_order_relaxed) == 0 &&
                      queued <= shm::kRingSize / 2,
          .is_told = in.bell.armed.load(std::memory_order_relaxed) != 0,
          .position = tail,
          .peer_cpu = in.writer.cpu.load(std::memory_order_relaxed)};
}

void UserStream::settle(int fd) {
  const KeepErrno keep;
  Hold hold(*this, rx_.lease);
  if (hold.take(fd, Hold::kReceive, MSG_DONTWAIT) != 0) return;
  if (reading_lane()) Receiver(*this, fd, {}, MSG_DONTWAIT).refresh();
}

}  // namespace ddpsock::engine
