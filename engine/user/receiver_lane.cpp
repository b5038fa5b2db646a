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
constexpr Duration kLinger = Duration::from_us(5);
constexpr int kLooksPerClock = 8;
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
    s_.r_.received.bytes.add(bytes.size);
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
  ++base::effort.system_calls;
  syscall(SYS_futex, &futex, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  errno = saved;
}

// What a process of this family took out of the lane when it left it.
bool UserStream::Receiver::take_residue() {
  bool has_taken = false;
  while (to_.left() > 0) {
    const size_t left = s_.residue_before(rx_.msn);
    if (left == 0) break;
    const auto bytes = s_.residue_at(0, std::min(left, to_.left()));
    put(bytes.data, static_cast<uint32_t>(bytes.size));
    s_.r_.received.bytes.add(bytes.size);
    rx_.residue_beg += static_cast<uint32_t>(bytes.size);
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
  was_empty_ = true;
  if (linger() || (may_wait && spin_for_bytes())) return 1;
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

// A moment, whether or not the call may wait: a program that calls again and again gains by it. For
// one that does not, the cost is bounded by the habit.
bool UserStream::Receiver::linger() {
  const uint32_t cpu = lane_->peer_cpu();
  if (cpu == 0 || cpu == base::current_cpu() || !s_.habit_.may_linger(base::thread_id()))
    return false;
  const Time end = base::now() + kLinger;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (!lane_->is_empty(rx_.msn)) {
        s_.habit_.on_lingered(true);
        return true;
      }
      base::Spin::relax();
    }
  } while (base::now() < end);
  s_.habit_.on_lingered(false);
  return false;
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

// A thread that will be back in a call, and not in a poller, leaves the bell where it is: the next
// bytes then need none.
bool UserStream::Receiver::may_bell_lie() const {
  const uint32_t thread = base::thread_id();
  if (s_.lazy_thread_.load(std::memory_order_relaxed) == thread) return true;
  return !ReadingHabit::waits_for_edges() && (has_spun_ || s_.habit_.waits_in_calls(thread));
}

void UserStream::Receiver::note_habit() {
  const uint32_t thread = base::thread_id();
  if (was_empty_) {
    s_.habit_.on_empty(thread, has_spun_);
  } else if (got_ > 0) {
    s_.habit_.on_prompt(thread);
  }
}

// An edge for all that comes from now on, as TCP gives it: a program may take the stream to be
// empty after a short read, or after as many bytes as FIONREAD has told or it knew to come.
void UserStream::Receiver::ask_for_edge() {
  if (!ReadingHabit::waits_for_edges() ||
      s_.lazy_thread_.load(std::memory_order_relaxed) == base::thread_id())
    return;
  // A reader that never comes to the end must not let them fill the socket. One stays, for the
  // bytes that are there.
  const bool is_at_bells = rx_.left == 0 && !lane_->is_wire_in_use(rx_.msn);
  if (lane_->bells_unread() > kMostBells / 2 && is_at_bells)
    take_bells(std::min(lane_->bells_unread(), kMostBells) - 1);
  if (lane_->bells_unread() <= kMostBells) lane_->ask_for_bell();
}

// So that the kernel does not call the socket readable for the sake of a bell that is stale.
void UserStream::Receiver::settle() {
  if (!lane_->is_empty(rx_.msn)) return;
  const uint32_t stale = std::min(lane_->bells_unread(), kMostBells);
  if (!lane_->arm(rx_.msn) || stale == 0) return;
  if (lane_->is_wire_in_use(rx_.msn)) return take_bells_singly(stale);
  take_bells(stale);
}

// REQUIRES: so many are unread, and nothing else is before them.
void UserStream::Receiver::take_bells(uint32_t count) {
  const uint32_t have = end_ - beg_;
  if (have >= count * kBell || read(count * kBell - have, MSG_DONTWAIT) <= 0) return;
  for (uint32_t i = 0; i < count && look() == Front::kVerified && rx_.left == 0; ++i) continue;
}

// Where an FPDU may come before a bell: of that nothing but its header is taken.
void UserStream::Receiver::take_bells_singly(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t have = end_ - beg_;
    if (have < kChunkHeader && read(kChunkHeader - have, MSG_DONTWAIT) <= 0) return;
    if (end_ - beg_ < kChunkHeader || !is_bell_in_front()) return;
    if (read(kBell - (end_ - beg_), MSG_DONTWAIT) <= 0) return;
    if (look() == Front::kFailed || beg_ != end_) return;
  }
}

// For calls that deliver nothing. True: the lane has bytes.
bool UserStream::Receiver::refresh() {
  got_ = 0;
  lane_ ? settle() : take_bells_singly(kMostBells);
  finish();
  return lane_ && lane_->size() > 0;
}

// In the order in which recv() would deliver: the rest of an FPDU, the ring (or what is left of it)
// up to a barrier, FPDUs, the ring behind it.
UserStream::LaneSight UserStream::look_into_lane(int fd, std::span<const iovec> to,
                                                 bool is_truncating) {
  IoCursor cursor(to);
  LaneSight sight{.room = cursor.left()};
  const auto lane = reading_lane();
  const auto show = [&](const uint8_t* p, size_t n) {
    n = std::min(n, cursor.left());
    is_truncating ? cursor.skip(n) : cursor.put(p, n);
    sight.seen += n;
  };
  const auto show_ring = [&](size_t from, size_t end) {
    while (from < end) {
      const auto bytes = lane ? lane->at(from, end - from) : residue_at(from, end - from);
      show(bytes.data, bytes.size);
      from += bytes.size;
    }
  };
  const auto size_before = [&](uint32_t next_fpdu) {
    return lane ? lane->size_before(next_fpdu) : residue_before(next_fpdu);
  };
  if (rx_.left > 0) show(arena_.block_data(rx_.block) + rx_.beg, rx_.left);
  const size_t before = size_before(rx_.msn);
  show_ring(0, before);
  if ((lane && !lane->is_wire_in_use(rx_.msn)) || cursor.left() == 0) return sight;
  Scan scan(*this, fd, cursor.left());
  const auto show_wire = [&](Scan::Span fpdus) {
    const Scan::Sight wire = scan.look_behind_front(&cursor, is_truncating, fpdus);
    sight.seen += wire.payload;
    sight.error = wire.error;
    sight.has_ended = wire.has_ended;
    return wire.next_fpdu;
  };
  const uint32_t barrier = lane ? lane->barrier_fpdu() : rx_.residue_fpdu;
  if (barrier == 0 || !shm::is_before(rx_.msn, barrier)) {
    show_wire({});
  } else if (show_wire({.end = barrier}) == barrier) {
    show_ring(before, size_before(barrier));
    if (cursor.left() > 0) show_wire({.first = barrier});
  }
  return sight;
}

// What lay in the lane when it was left, as of a reader that expects FPDU `next_fpdu`.
size_t UserStream::residue_before(uint32_t next_fpdu) const {
  const bool is_behind = rx_.residue_fpdu != 0 && shm::is_before(next_fpdu, rx_.residue_fpdu);
  const uint32_t end = is_behind ? rx_.residue_split : rx_.residue_end;
  return end > rx_.residue_beg ? end - rx_.residue_beg : 0;
}

// Contiguous bytes of it, `skip` behind the next.
shm::LaneReader::Bytes UserStream::residue_at(size_t skip, size_t most) {
  const size_t at = rx_.residue_beg + skip;
  const size_t offset = at % Arena::kBlockSize;
  return {arena_.block_data(rx_.residue_blocks[at / Arena::kBlockSize]) + offset,
          std::min(most, Arena::kBlockSize - offset)};
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
    const auto lane = reading_lane();
    if (sight.seen == 0 && lane && !lane->is_wire_in_use(rx_.msn)) {
      if (Receiver(*this, fd, {}, MSG_DONTWAIT).refresh()) continue;
      uint8_t byte;
      rx_.is_asleep = true;
      const ssize_t n = base::sys.recv(fd, &byte, 1, MSG_PEEK | (may_wait ? 0 : MSG_DONTWAIT));
      rx_.is_asleep = false;
      if (lane->size() > 0) continue;
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
  habit_.on_poller();
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
  // What comes by the wire first may still be under way there.
  const bool is_behind_wire =
      !rx_.is_started || shm::is_before(in.reader.next_fpdu.load(std::memory_order_relaxed),
                                        in.writer.barrier_fpdu.load(std::memory_order_acquire));
  return {
      .may_be_in_memory = true,
      .is_in_memory = true,
      .is_wire_in_use = is_behind_wire || in.writer.is_on_wire.load(std::memory_order_relaxed) != 0,
      .has_bytes = !is_behind_wire &&
                   (tail & ~shm::kClosedBit) != in.reader.head.load(std::memory_order_relaxed),
      .has_room = out.writer.is_on_wire.load(std::memory_order_relaxed) == 0 &&
                  queued <= shm::kRingSize / 2,
      .position = tail,
      .peer_cpu = in.writer.cpu.load(std::memory_order_relaxed)};
}

void UserStream::settle(int fd) {
  const KeepErrno keep;
  Hold hold(*this, rx_.lease);
  if (hold.take(fd, Hold::kReceive, MSG_DONTWAIT) != 0) return;
  // What comes first is the peer's start-up frame, and no bell.
  if (!rx_.is_started && start_receiving(fd, MSG_DONTWAIT) != 0) return;
  if (reading_lane()) Receiver(*this, fd, {}, MSG_DONTWAIT).refresh();
}

}  // namespace ddpsock::engine
