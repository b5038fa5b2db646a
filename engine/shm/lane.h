// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One direction of a shared-memory connection: a ring of bytes, and beside it the TCP connection
// ("the wire") for what does not fit and for bells. Sans-IO: no system call, no wait, no clock.
//
// Positions count bytes since the beginning and never wrap (63 bits). What a side knows for sure it
// keeps in its own state (LaneTx, LaneRx, in memory the peer does not have); everything in `Lane`
// is written by the peer too, so each word is copied once and bounded before it is used, and an
// offset into `data` is masked. A peer that lies spoils its own bytes.
//
// Bytes of stream go into the ring, or as FPDUs over the wire while the ring is full and before
// both sides have it. The order between the two needs no position in the FPDU:
//   - to the wire (`is_on_wire`): ring bytes written before precede every FPDU after it, and a
//     reader that has taken an FPDU from the kernel sees them all. It reads the ring first.
//   - back to the ring: the writer notes a barrier, "ring bytes from B on follow all FPDUs before
//     number M", and rings once. It does so again only when the reader has passed the last barrier.
#ifndef DDPSOCK_ENGINE_SHM_LANE_H_
#define DDPSOCK_ENGINE_SHM_LANE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/shm/bell.h"

namespace ddpsock::engine::shm {

inline constexpr uint32_t kRingSize = 256 * 1024;
// A ring that is empty begins again at its first byte before it has used more than this, so that a
// connection with small messages touches one page and stays in the cache.
inline constexpr uint32_t kSmallRing = 3 * 1024;
// Apart so far, because processors fetch lines in pairs.
inline constexpr size_t kLine = 128;

struct Lane {
  // Zeroed memory becomes a lane that nobody has used.
  void reset() {
    writer.is_on_wire.store(1, std::memory_order_relaxed);
    reader.next_fpdu.store(1, std::memory_order_relaxed);
    bell.armed.store(1, std::memory_order_relaxed);
  }

  struct alignas(kLine) {  // by the writer
    std::atomic<uint64_t> tail;
    std::atomic<uint64_t> base;          // the position that lies at data[0]
    std::atomic<uint64_t> barrier;       // B
    std::atomic<uint32_t> barrier_fpdu;  // M
    std::atomic<uint32_t> bells;         // sent so far
    std::atomic<uint32_t> is_on_wire;
    std::atomic<uint32_t> cpu;  // where it last ran, plus 1
  } writer;
  struct alignas(kLine) {  // by the reader
    std::atomic<uint64_t> head;
    std::atomic<uint32_t> next_fpdu;  // the FPDU it expects
    std::atomic<uint32_t> cpu;
    std::atomic<uint32_t> has_left;  // the last process that held the stream has released it
  } reader;
  struct alignas(kLine) {  // by both
    std::atomic<uint32_t> armed;
    std::atomic<uint32_t> room_wanted;  // a futex: the writer sleeps until there is room
  } bell;
  alignas(kLine) std::array<uint8_t, kLine> reserved;
  alignas(kLine) std::array<uint8_t, kRingSize> data;
};

// What the writer knows. Plain data in its own memory, touched under the lease of its direction.
struct LaneTx {
  uint64_t tail = 0;
  uint64_t base = 0;
  uint64_t head = 0;                // the reader's, when last looked at
  uint32_t barrier_fpdu = 0;        // M of the last barrier
  uint32_t populated = kSmallRing;  // bytes of `data` that surely have memory
  bool is_on_wire = true;
  bool must_ring = false;  // the first publication after a barrier
};

struct LaneRx {
  uint64_t head = 0;
  uint32_t bells = 0;  // taken from the kernel
};

// FPDU numbers wrap.
constexpr bool is_before(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) < 0;
}

class LaneWriter {
 public:
  LaneWriter(Lane& lane, LaneTx& state) : lane_(lane), s_(state) {}

  struct Room {
    uint8_t* data;
    size_t size;
  };

  // Contiguous room, at most `most`; size 0: full. Looks at the reader's head only when what it
  // knew does not suffice.
  Room room(size_t most) {
    const uint64_t used = s_.tail - s_.base;
    const bool is_leaving_small = used > 0 && used + most > kSmallRing;
    if (free_known() < most || (is_leaving_small && s_.head != s_.tail)) look_at_head();
    if (is_leaving_small && s_.head == s_.tail) rewind();
    const size_t offset = (s_.tail - s_.base) & (kRingSize - 1);
    return {lane_.data.data() + offset,
            std::min({most, free_known(), static_cast<size_t>(kRingSize - offset)})};
  }

  // Where room() pointed, as an offset, for whoever provides the memory behind it.
  size_t offset() const { return (s_.tail - s_.base) & (kRingSize - 1); }

  // `n` bytes have been written where room() said. kClosed, kCorrupt: they are not sent.
  Publication publish(size_t n, uint32_t cpu) {
    if (lane_.writer.cpu.load(std::memory_order_relaxed) != cpu)
      lane_.writer.cpu.store(cpu, std::memory_order_relaxed);
    Publication p = shm::publish(lane_.writer.tail, lane_.bell.armed, s_.tail, s_.tail + n);
    if (p == Publication::kClosed || p == Publication::kCorrupt) return p;
    s_.tail += n;
    if (s_.must_ring) {
      s_.must_ring = false;
      disarm(lane_.bell.armed);
      p = Publication::kMustRing;
    }
    return p;
  }

  // Counts a bell. Before it is sent: a reader must not find one that nobody has counted.
  void count_bell() { lane_.writer.bells.fetch_add(1, std::memory_order_relaxed); }

  bool is_closed() const {
    return (lane_.writer.tail.load(std::memory_order_relaxed) & kClosedBit) != 0;
  }

  // From now on by FPDUs.
  void turn_to_wire() {
    s_.is_on_wire = true;
    lane_.writer.is_on_wire.store(1, std::memory_order_release);
  }

  // From now on by the ring, behind all FPDUs before `next_fpdu`. False: the reader has not passed
  // the last barrier, or there is less than `wanted` room.
  bool turn_to_ring(uint32_t next_fpdu, size_t wanted) {
    if (next_fpdu == 0) return false;  // means "no barrier"
    if (s_.barrier_fpdu != 0 &&
        is_before(lane_.reader.next_fpdu.load(std::memory_order_acquire), s_.barrier_fpdu))
      return false;
    if (free_known() < wanted) look_at_head();
    if (free_known() < wanted) return false;
    s_.barrier_fpdu = next_fpdu;
    s_.is_on_wire = false;
    s_.must_ring = true;
    lane_.writer.barrier.store(s_.tail, std::memory_order_relaxed);
    lane_.writer.barrier_fpdu.store(next_fpdu, std::memory_order_release);
    lane_.writer.is_on_wire.store(0, std::memory_order_release);
    return true;
  }

  // The writer is about to sleep until the reader makes room. False: there is some by now.
  bool want_room() {
    lane_.bell.room_wanted.store(1, std::memory_order_seq_cst);
    look_at_head(std::memory_order_seq_cst);
    return free_known() == 0;
  }
  bool is_full() {
    if (free_known() == 0) look_at_head();
    return free_known() == 0;
  }
  std::atomic<uint32_t>& room_futex() { return lane_.bell.room_wanted; }
  void want_no_room() { lane_.bell.room_wanted.store(0, std::memory_order_relaxed); }
  uint32_t peer_cpu() const { return lane_.reader.cpu.load(std::memory_order_relaxed); }
  Lane& lane() { return lane_; }
  bool is_read_to_end() {
    look_at_head();
    return s_.head == s_.tail;
  }

 private:
  size_t free_known() const { return kRingSize - static_cast<size_t>(s_.tail - s_.head); }

  void look_at_head(std::memory_order order = std::memory_order_acquire) {
    const uint64_t head = lane_.reader.head.load(order);
    // A head that goes back, or ahead of the tail, is a lie; what was known stays.
    if (head - s_.head <= s_.tail - s_.head) s_.head = head;
  }

  void rewind() {
    s_.base = s_.tail;
    lane_.writer.base.store(s_.base, std::memory_order_relaxed);
  }

  Lane& lane_;
  LaneTx& s_;
};

class LaneReader {
 public:
  LaneReader(Lane& lane, LaneRx& state) : lane_(lane), s_(state) {}

  struct Bytes {
    const uint8_t* data;
    size_t size;
    bool is_corrupt = false;
  };

  // Contiguous bytes that come next in the stream for a reader that expects FPDU `next_fpdu`, at
  // most `most`. Size 0: the ring has none before that FPDU.
  Bytes next(uint32_t next_fpdu, size_t most) const {
    const uint64_t tail = lane_.writer.tail.load(std::memory_order_acquire) & ~kClosedBit;
    const uint64_t available = limit(tail, next_fpdu) - s_.head;
    if (tail - s_.head > kRingSize) return {nullptr, 0, true};
    if (available == 0) return {nullptr, 0};
    const uint64_t base = lane_.writer.base.load(std::memory_order_relaxed);
    const size_t offset = (s_.head - base) & (kRingSize - 1);
    return {lane_.data.data() + offset, std::min({most, static_cast<size_t>(available),
                                                  static_cast<size_t>(kRingSize - offset)})};
  }

  // Contiguous bytes `skip` behind the next, without regard to FPDUs that come before; for who
  // looks or leaves, and has asked size_before(). REQUIRES: skip + most <= size() when that was
  // asked.
  Bytes at(size_t skip, size_t most) const {
    const uint64_t base = lane_.writer.base.load(std::memory_order_relaxed);
    const size_t offset = (s_.head + skip - base) & (kRingSize - 1);
    return {lane_.data.data() + offset, std::min(most, static_cast<size_t>(kRingSize - offset))};
  }

  // `n` bytes have been taken. True: the writer sleeps for want of room and must be woken.
  [[nodiscard]] bool take(size_t n, uint32_t cpu) {
    s_.head += n;
    if (lane_.reader.cpu.load(std::memory_order_relaxed) != cpu)
      lane_.reader.cpu.store(cpu, std::memory_order_relaxed);
    lane_.reader.head.store(s_.head, std::memory_order_seq_cst);
    return lane_.bell.room_wanted.load(std::memory_order_seq_cst) != 0;
  }

  // Bytes in the ring, those behind a barrier too.
  size_t size() const {
    const uint64_t n = (lane_.writer.tail.load(std::memory_order_acquire) & ~kClosedBit) - s_.head;
    return n <= kRingSize ? static_cast<size_t>(n) : 0;
  }
  size_t size_before(uint32_t next_fpdu) const {
    const uint64_t tail = lane_.writer.tail.load(std::memory_order_acquire) & ~kClosedBit;
    if (tail - s_.head > kRingSize) return 0;
    return static_cast<size_t>(limit(tail, next_fpdu) - s_.head);
  }
  uint32_t barrier_fpdu() const {
    return lane_.writer.barrier_fpdu.load(std::memory_order_acquire);
  }
  bool is_empty(uint32_t next_fpdu) const { return next(next_fpdu, 1).size == 0; }

  // Could FPDUs with bytes of stream be in the kernel or on their way there?
  bool is_wire_in_use(uint32_t next_fpdu) const {
    return lane_.writer.is_on_wire.load(std::memory_order_acquire) != 0 ||
           is_before(next_fpdu, lane_.writer.barrier_fpdu.load(std::memory_order_acquire));
  }

  void note_fpdu(uint32_t next_fpdu) {
    lane_.reader.next_fpdu.store(next_fpdu, std::memory_order_release);
  }

  // Bells that were sent and not taken, as of now. Ask before arming: those are stale afterwards.
  uint32_t bells_unread() const {
    return lane_.writer.bells.load(std::memory_order_relaxed) - s_.bells;
  }
  bool is_armed() const { return lane_.bell.armed.load(std::memory_order_relaxed) != 0; }

  bool is_room_wanted() const {
    return lane_.bell.room_wanted.load(std::memory_order_relaxed) != 0;
  }
  // The futex on which the writer sleeps; awake is what it must be told.
  std::atomic<uint32_t>& room_futex() { return lane_.bell.room_wanted; }

  uint32_t peer_cpu() const { return lane_.writer.cpu.load(std::memory_order_relaxed); }

  // The next bytes shall ring, whatever lies here.
  void ask_for_bell() {
    if (!is_armed()) lane_.bell.armed.store(1, std::memory_order_seq_cst);
  }

  // Asks for a bell. False: there are bytes by now, and the question was taken back where possible.
  bool arm(uint32_t next_fpdu) {
    if (is_armed()) return is_empty(next_fpdu);
    shm::arm(lane_.writer.tail, lane_.bell.armed);
    if (is_empty(next_fpdu)) return true;
    disarm(lane_.bell.armed);
    return false;
  }

  // No more is published after this; the last bytes are those that next() still shows.
  void close() { close_lane(lane_.writer.tail); }

 private:
  // Read in this order after the tail: whoever published it had noted the barrier before.
  uint64_t limit(uint64_t tail, uint32_t next_fpdu) const {
    const uint32_t m = lane_.writer.barrier_fpdu.load(std::memory_order_acquire);
    if (m == 0 || !is_before(next_fpdu, m)) return tail;
    const uint64_t b = lane_.writer.barrier.load(std::memory_order_relaxed);
    // An old barrier that the reader has passed, seen with the new number: nothing yet.
    if (b < s_.head) return s_.head;
    return std::min(tail, b);
  }

  Lane& lane_;
  LaneRx& s_;
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_ENGINE_SHM_LANE_H_
