// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One direction of a shared-memory connection: bytes in memory, and beside it the TCP connection
// ("the wire") for what came before, for bells and for filler. No wait; of clocks only the
// processor's, for a reader that wants order.
//
// Positions count bytes since the beginning and never wrap (63 bits). What a side knows for sure it
// keeps in its own state (LaneTx, LaneRx, in memory the peer does not have); everything in `Lane`
// is written by the peer too, so each word is copied once and bounded before it is used. A peer
// that lies spoils its own bytes.
//
// Bytes lie in one of three areas, in this order: those from `base` on in the lane's own page,
// those from `ring_from` on in a ring that stays in a processor's cache, those from `spill_from` on
// in a large one, for which there is memory only while bytes lie there, unless it keeps it. A lane
// that is read to its end begins in its own page again.
//
// The last few bytes lie beside the tail, too: a small message is one line that comes from the
// other processor, and not two.
//
// On the wire the writer puts `octets`, counted before they are sent: bells, one octet each, and
// filler. The reader takes as many as are counted and looks at none of them.
#ifndef DDPSOCK_SHM_LANE_H_
#define DDPSOCK_SHM_LANE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "shm/bell.h"

namespace ddpsock::engine::shm {

inline constexpr uint32_t kRingSize = 256 * 1024;
inline constexpr uint32_t kSpillSize = 4 * 1024 * 1024;
// A writer of small messages touches one page and stays in the cache.
inline constexpr uint32_t kSmallSize = 3 * 1024;
inline constexpr uint32_t kLanePage = 4096;
// Lent, and given back, at a time. A writer that can wait asks for more only if its reader makes no
// room meanwhile: what lies there costs more than what goes round in the cache.
inline constexpr uint32_t kSpillPiece = 256 * 1024;
// The piece in which the reader stands is not written again before it has left it.
inline constexpr uint32_t kMostSpilt = kSpillSize - kSpillPiece;
inline constexpr size_t kMostBytes = size_t{kSmallSize} + kRingSize + kMostSpilt;
// So much must be free before pollers call a blocking socket writable: a quarter, TCP wants a
// third.
inline constexpr size_t kRoomOfAPromise = kMostSpilt / 4;
// Where so much lies unread its writer may be waiting: the reader must not wait for more.
inline constexpr size_t kAsGoodAsFull = kMostSpilt - kRoomOfAPromise;
inline constexpr size_t kRingsSize = size_t{kRingSize} + kSpillSize;
// Apart so far, because processors fetch lines in pairs.
inline constexpr size_t kLine = 128;

inline constexpr uint64_t kNowhere = ~uint64_t{0};

// Of bytes that are published together.
inline constexpr size_t kMostBesideTail = 16;
// A copy of them for a reader that has read all before; whatever it says is only this direction's
// bytes. One is written while the tail tells of the other, so that who finds the tail unmoved
// behind its copying has what belongs to it.
struct BesideTail {
  std::atomic<uint64_t> tag;  // the position of their end, and how many
  std::array<std::atomic<uint64_t>, kMostBesideTail / 8> words;

  static constexpr unsigned kSizeBits = 5;
  static constexpr uint64_t tag_of(uint64_t end, size_t size) { return end << kSizeBits | size; }
  static constexpr size_t size_in(uint64_t tag) { return tag & ((1u << kSizeBits) - 1); }
};

struct Lane {
  // Zeroed memory becomes a lane that nobody has used.
  void reset() {
    writer.ring_from.store(kNowhere, std::memory_order_relaxed);
    writer.spill_from.store(kNowhere, std::memory_order_relaxed);
    writer.fpdus.store(1, std::memory_order_relaxed);
    reader.next_fpdu.store(1, std::memory_order_relaxed);
    bell.armed.store(1, std::memory_order_relaxed);
  }

  struct alignas(kLine) {  // by the writer
    std::atomic<uint64_t> tail;
    std::array<BesideTail, 2> beside_tail;
    std::atomic<uint32_t> has_ended;  // its FIN is on the wire, or will be at once
    std::atomic<uint32_t> cpu;        // where it last ran, plus 1
    // Up to here a line of 64 bytes: all of it that changes with each message.
    std::atomic<uint64_t> base, ring_from, spill_from;
    std::atomic<uint64_t> octets;
    // base::ticks() when the first of the bytes came that were unread after them, for who
    // wants_order. Before that 0.
    std::atomic<uint64_t> unread_since;
    // Octets that there will ever be, plus 1, once it has left: FPDUs follow them. 0: not left.
    std::atomic<uint64_t> last_octet;
    // The octets once they are in the kernel, or have been taken back.
    std::atomic<uint64_t> settled_octets;
    std::atomic<uint32_t> fpdus;  // the number of the next, as far as they precede the octets
    // Its end of the connection is a reset, whatever has been read (SO_LINGER 0).
    std::atomic<uint8_t> is_resetting;
    // What is read of the large ring keeps its memory (LaneWriter::keep_spill).
    std::atomic<uint8_t> keeps_spill;
  } writer;
  static_assert(sizeof(writer) == kLine);
  struct alignas(kLine) {  // by the reader
    std::atomic<uint64_t> head;
    std::atomic<uint32_t> next_fpdu;  // the FPDU it expects
    std::atomic<uint32_t> cpu;
  } reader;
  struct alignas(kLine) {  // by both
    std::atomic<uint32_t> armed;
    // A futex: the writer sleeps until no more than so many bytes, plus 1, are left.
    std::atomic<uint32_t> room_wanted;
    std::atomic<uint32_t> wants_order;  // the reader watches others too
  } bell;
  alignas(kLine) std::array<uint8_t, kLine> reserved;
  alignas(kLine) std::array<uint8_t, kSmallSize> small;
};
static_assert(sizeof(Lane) <= kLanePage);

// Where the two rings of a lane lie.
class Rings {
 public:
  explicit Rings(uint8_t* data) : data_(data) {}
  uint8_t* data() const { return data_; }
  // Provides memory for bytes [from, to); false if there is none, and then they must not be
  // written: the kernel would answer with SIGBUS.
  virtual bool provide(size_t from, size_t to) = 0;
  // Bytes [from, to), whole pages, are no longer needed.
  virtual void give_back(size_t from, size_t to) = 0;

 protected:
  ~Rings() = default;

 private:
  uint8_t* data_;
};

// What the writer knows. Plain data in its own memory, touched under the lease of its direction.
struct LaneTx {
  uint64_t tail = 0;
  uint64_t head = 0;  // the reader's, when last looked at
  uint64_t base = 0, ring_from = kNowhere, spill_from = kNowhere;
  uint64_t spill_until = 0;  // the position up to which the large ring is lent, and has memory
  uint32_t provided = 0;     // bytes of the small ring that surely have memory
  uint32_t kept = 0;         // of the large one, from its beginning on, which surely keep it
  bool keeps_spill = false;
  uint8_t beside = 0;      // which copy was published last
  bool must_ring = false;  // with the next publication
  bool is_poor = false;    // no memory for the rings, when last asked for
};

struct LaneRx {
  std::atomic<uint64_t> head{0};  // for pollers, too, that have no lease
  uint64_t octets = 0;            // taken from the kernel
};

class LaneWriter {
 public:
  LaneWriter(Lane& lane, LaneTx& state, Rings& rings) : lane_(lane), s_(state), rings_(rings) {}

  struct Room {
    uint8_t* data;
    size_t size;
  };

  // Contiguous room, at most `most`; size 0: full, or there is no memory behind it.
  Room room(size_t most) {
    // note_time() will look there, and the reader has written since.
    if (lane_.bell.wants_order.load(std::memory_order_relaxed) != 0)
      __builtin_prefetch(&lane_.reader);
    if (!is_in_ring() && used_of_page() + most <= kSmallSize) return room_in_page(most);
    if (s_.head != s_.tail) look_at_head();
    if (s_.head == s_.tail) rewind();
    if (!is_in_ring()) {
      if (used_of_page() + most <= kSmallSize) return room_in_page(most);
      const Room ring = room_in_ring(s_.tail, most);
      if (ring.size == 0) return s_.head == s_.tail ? room_in_page(kSmallSize) : ring;
      lane_.writer.ring_from.store(s_.ring_from = s_.tail, std::memory_order_relaxed);
      return ring;
    }
    return is_spilling() ? room_in_spill(most) : room_in_ring(s_.ring_from, most);
  }

  // There is no room, and none will be made before more is needed: lends a piece of the large ring,
  // into which all goes until all is read. False: none is left.
  bool lend_spill() {
    if (s_.is_poor) return false;
    const uint64_t from = is_spilling() ? s_.spill_from : s_.tail;
    const size_t offset = static_cast<size_t>(s_.tail - from) & (kSpillSize - 1);
    const size_t size =
        std::min<size_t>({kSpillPiece, kMostSpilt - lying_from(from), kSpillSize - offset});
    if (size == 0) return false;
    if (!provide_spill(offset, offset + size)) return false;
    if (!is_spilling())
      lane_.writer.spill_from.store(s_.spill_from = from, std::memory_order_relaxed);
    s_.spill_until = s_.tail + size;
    return true;
  }

  // To give the memory of the large ring back and to get it again costs more than to copy what lies
  // in it. From now on what comes to lie there keeps its memory, for a writer that needs it again
  // and again.
  void keep_spill() {
    s_.keeps_spill = true;
    lane_.writer.keeps_spill.store(1, std::memory_order_relaxed);
  }
  // The reader gives back again what it reads; what it has read is given back here.
  void keep_no_more() {
    if (is_spilling()) {
      look_at_head();
      const uint64_t lying_from = std::max(s_.head, s_.spill_from) - s_.spill_from;
      give_back_spill(whole_pages(s_.tail - s_.spill_from), lying_from + kSpillSize);
      s_.spill_until = s_.tail;
    }
    s_.kept = 0;
    s_.keeps_spill = false;
    lane_.writer.keeps_spill.store(0, std::memory_order_relaxed);
  }
  // Nothing is kept any more, and what was is given back. False: bytes lie there.
  bool let_go_of_spill() {
    if (is_spilling()) {
      look_at_head();
      if (s_.head != s_.tail) return false;
      rewind();
    }
    rings_.give_back(kRingSize, kRingsSize);
    keep_no_more();
    return true;
  }
  bool keeps_spill() const { return s_.keeps_spill; }
  bool is_spilling() const { return s_.spill_from != kNowhere; }
  // So much has gone through the large ring since all was read the last time.
  bool has_come_round() const { return is_spilling() && s_.tail - s_.spill_from >= kSpillSize; }

  // The bytes that are published next, where they lie.
  void put_beside_tail(const uint8_t* bytes, size_t n) {
    if (n > kMostBesideTail || is_spilling()) return;
    std::array<uint64_t, kMostBesideTail / 8> words{};
    std::memcpy(words.data(), bytes, n);
    BesideTail& beside = lane_.writer.beside_tail[s_.beside ^ 1];
    // Whoever sees one of these sees that the tail has moved on from what was here.
    std::atomic_thread_fence(std::memory_order_release);
    for (size_t i = 0; i < words.size(); ++i)
      beside.words[i].store(words[i], std::memory_order_relaxed);
    beside.tag.store(BesideTail::tag_of(s_.tail + n, n), std::memory_order_relaxed);
    has_put_ = true;
  }
  // `n` bytes have been written where room() said. kClosed, kCorrupt: they are not sent.
  Publication publish(size_t n, uint32_t cpu) {
    if (lane_.writer.cpu.load(std::memory_order_relaxed) != cpu)
      lane_.writer.cpu.store(cpu, std::memory_order_relaxed);
    if (lane_.bell.wants_order.load(std::memory_order_relaxed) != 0) note_time();
    Publication p = shm::publish(lane_.writer.tail, lane_.bell.armed, s_.tail, s_.tail + n);
    if (p == Publication::kClosed || p == Publication::kCorrupt) return p;
    s_.tail += n;
    if (std::exchange(has_put_, false)) s_.beside ^= 1;
    if (s_.must_ring) {
      s_.must_ring = false;
      disarm(lane_.bell.armed);
      p = Publication::kMustRing;
    }
    return p;
  }

  // `n` octets are about to be sent. False: the lane is closed, they must not be, and do not count.
  [[nodiscard]] bool count(uint64_t n) {
    lane_.writer.octets.fetch_add(n, std::memory_order_seq_cst);
    if (!is_closed()) return true;
    settle(n);
    return false;
  }
  // Those counted last were sent, but for `unsent`.
  void settle(uint64_t unsent) {
    if (unsent > 0) lane_.writer.octets.fetch_sub(unsent, std::memory_order_seq_cst);
    lane_.writer.settled_octets.store(lane_.writer.octets.load(std::memory_order_relaxed),
                                      std::memory_order_release);
  }

  // A guess.
  bool is_bell_wanted() const {
    return s_.must_ring || lane_.bell.armed.load(std::memory_order_relaxed) != 0;
  }

  bool is_closed() const {
    return (lane_.writer.tail.load(std::memory_order_seq_cst) & kClosedBit) != 0;
  }
  // Nothing is published any more, by whomever: a FIN follows, or FPDUs.
  void close() { close_lane(lane_.writer.tail); }
  // FPDUs follow the octets counted so far. REQUIRES: close(), and nobody is sending octets.
  void leave() {
    if (lane_.writer.last_octet.load(std::memory_order_relaxed) != 0) return;
    const uint64_t n = lane_.writer.octets.load(std::memory_order_relaxed);
    lane_.writer.last_octet.store(n + 1, std::memory_order_release);
  }

  // The writer is about to sleep until the reader makes room. False: there is some by now.
  bool want_room() {
    const uint32_t left = is_spilling() ? 0 : kRingSize / 2;
    lane_.bell.room_wanted.store(left + 1, std::memory_order_seq_cst);
    look_at_head(std::memory_order_seq_cst);
    return !has_room();
  }
  bool is_full() {
    if (!has_room()) look_at_head(std::memory_order_seq_cst);
    return !has_room();
  }
  // What can be written before the reader makes room, the large ring included, if there is memory.
  size_t left() {
    look_at_head(std::memory_order_seq_cst);
    if (s_.head == s_.tail) return kMostBytes;
    if (s_.is_poor) return 0;
    return is_spilling() ? kMostSpilt - lying_from(s_.spill_from) : kMostSpilt;
  }
  std::atomic<uint32_t>& room_futex() { return lane_.bell.room_wanted; }
  void want_no_room() { lane_.bell.room_wanted.store(0, std::memory_order_relaxed); }
  uint32_t peer_cpu() const { return lane_.reader.cpu.load(std::memory_order_relaxed); }
  Lane& lane() { return lane_; }

 private:
  static constexpr uint64_t whole_pages(uint64_t n) {
    return (n + kLanePage - 1) / kLanePage * kLanePage;
  }
  bool is_in_ring() const { return s_.ring_from != kNowhere; }
  size_t used_of_page() const { return static_cast<size_t>(s_.tail - s_.base); }
  // Bytes of the area that begins at `from` that are not read.
  size_t lying_from(uint64_t from) const {
    return static_cast<size_t>(s_.tail - std::max(s_.head, from));
  }
  bool has_room() const {
    if (s_.head == s_.tail) return true;
    if (s_.is_poor) return false;
    if (is_spilling()) return s_.tail < s_.spill_until;
    return !is_in_ring() || lying_from(s_.ring_from) < kRingSize;
  }

  Room room_in_page(size_t most) {
    const size_t used = used_of_page();
    return {lane_.small.data() + used, std::min(most, kSmallSize - used)};
  }
  Room room_in_ring(uint64_t from, size_t most) {
    const size_t offset = static_cast<size_t>(s_.tail - from) & (kRingSize - 1);
    const size_t n = std::min({most, kRingSize - lying_from(from), kRingSize - offset});
    if (n == 0) return {nullptr, 0};
    s_.is_poor = false;
    if (offset + n > s_.provided) {
      const size_t to =
          std::min<size_t>(std::max<size_t>(offset + n, 2 * size_t{s_.provided}), kRingSize);
      s_.is_poor = !rings_.provide(s_.provided, to);
      if (s_.is_poor) return {nullptr, 0};
      s_.provided = static_cast<uint32_t>(to);
    }
    return {rings_.data() + offset, n};
  }
  Room room_in_spill(size_t most) {
    const size_t offset = static_cast<size_t>(s_.tail - s_.spill_from) & (kSpillSize - 1);
    const size_t n = std::min<size_t>(
        {most, static_cast<size_t>(s_.spill_until - s_.tail), kSpillSize - offset});
    if (n == 0) return {nullptr, 0};
    return {rings_.data() + kRingSize + offset, n};
  }

  // Positions of the large ring's stream of bytes, the first at a page.
  void give_back_spill(uint64_t from, uint64_t to) {
    while (from + kLanePage <= to) {
      const size_t offset = static_cast<size_t>(from) & (kSpillSize - 1);
      const size_t size =
          std::min<size_t>(kSpillSize - offset, (to - from) / kLanePage * kLanePage);
      rings_.give_back(kRingSize + offset, kRingSize + offset + size);
      from += size;
    }
  }
  bool provide_spill(size_t from, size_t to) {
    if (to <= s_.kept) return true;
    s_.is_poor = !rings_.provide(kRingSize + from, kRingSize + to);
    // What was lent before it kept may have been given back: it counts from the beginning on.
    if (s_.keeps_spill && !s_.is_poor && from <= s_.kept) s_.kept = static_cast<uint32_t>(to);
    return !s_.is_poor;
  }

  // Bytes are about to be published: a poller on TCP lists a socket where the first of them came.
  void note_time() {
    if (s_.head != s_.tail) look_at_head();
    if (s_.head == s_.tail)
      lane_.writer.unread_since.store(base::ticks(), std::memory_order_relaxed);
  }

  void look_at_head(std::memory_order order = std::memory_order_acquire) {
    const uint64_t head = lane_.reader.head.load(order);
    // A head that goes back, or ahead of the tail, is a lie; what was known stays.
    if (head - s_.head <= s_.tail - s_.head) s_.head = head;
  }

  // REQUIRES: the reader has read all.
  void rewind() {
    if (is_spilling()) {
      const size_t at = static_cast<size_t>(s_.tail - s_.spill_from) & (kSpillSize - 1);
      const size_t first = at / kSpillPiece * kSpillPiece;
      const size_t size = static_cast<size_t>(s_.spill_until - s_.tail) + (at - first);
      const auto last = static_cast<size_t>(whole_pages(first + size));
      if (size > 0 && !s_.keeps_spill) rings_.give_back(kRingSize + first, kRingSize + last);
      lane_.writer.spill_from.store(s_.spill_from = kNowhere, std::memory_order_relaxed);
    }
    if (is_in_ring())
      lane_.writer.ring_from.store(s_.ring_from = kNowhere, std::memory_order_relaxed);
    if (s_.base != s_.tail) lane_.writer.base.store(s_.base = s_.tail, std::memory_order_relaxed);
    s_.is_poor = false;
  }

  Lane& lane_;
  LaneTx& s_;
  Rings& rings_;
  bool has_put_ = false;
};

class LaneReader {
 public:
  LaneReader(Lane& lane, LaneRx& state, Rings& rings) : lane_(lane), s_(state), rings_(rings) {}

  struct Bytes {
    const uint8_t* data;
    size_t size;
    bool is_corrupt = false;
    uint64_t spilt_at = kNowhere;  // where the large ring's stream of bytes has the first, if there
  };

  // Contiguous bytes that come next in the stream, at most `most`. Size 0: there are none.
  Bytes next(size_t most) const { return at(0, most); }

  // The same `skip` bytes further on.
  Bytes at(size_t skip, size_t most) const {
    const uint64_t tail = tail_now();
    const uint64_t size = tail - head();
    if (size > kMostBytes) return {nullptr, 0, true};
    if (skip >= size) return {nullptr, 0};
    const uint64_t p = head() + skip;
    if (tail - p <= kMostBesideTail) {
      if (const Bytes copy = beside_tail(tail, tail - p); copy.size != 0)
        return {copy.data, std::min(most, copy.size)};
    }
    const uint64_t spill_from = lane_.writer.spill_from.load(std::memory_order_relaxed);
    const uint64_t ring_from = lane_.writer.ring_from.load(std::memory_order_relaxed);
    if (p >= spill_from) {
      Bytes bytes = in_ring(p - spill_from, kRingSize, kSpillSize, most, tail - p);
      bytes.spilt_at = p - spill_from;
      return bytes;
    }
    if (p >= ring_from)
      return in_ring(p - ring_from, 0, kRingSize, most, std::min(tail, spill_from) - p);
    const uint64_t offset = p - lane_.writer.base.load(std::memory_order_relaxed);
    if (offset >= kSmallSize) return {nullptr, 0, true};
    const uint64_t end = std::min({tail, ring_from, spill_from});
    return {lane_.small.data() + offset, std::min({most, static_cast<size_t>(end - p),
                                                   static_cast<size_t>(kSmallSize - offset)})};
  }

  // All of what next() gave has been taken. True: the writer sleeps for want of room and must be
  // woken.
  [[nodiscard]] bool take(const Bytes& bytes, uint32_t cpu) {
    if (bytes.spilt_at != kNowhere) [[unlikely]]
      give_back(bytes.spilt_at, bytes.size);
    const uint64_t head = this->head() + bytes.size;
    s_.head.store(head, std::memory_order_relaxed);
    if (lane_.reader.cpu.load(std::memory_order_relaxed) != cpu)
      lane_.reader.cpu.store(cpu, std::memory_order_relaxed);
    lane_.reader.head.store(head, std::memory_order_seq_cst);
    const uint32_t wanted = lane_.bell.room_wanted.load(std::memory_order_seq_cst);
    return wanted != 0 && size() < wanted;
  }

  size_t size() const {
    const uint64_t n = tail_now() - head();
    return n <= kMostBytes ? static_cast<size_t>(n) : 0;
  }
  // Also of one that is corrupt: it has something to say.
  bool is_empty() const { return tail_now() == head(); }

  // No more is published after this, and the writer sends no octet that is not counted by now.
  void close() { close_lane(lane_.writer.tail); }
  bool is_closed() const {
    return (lane_.writer.tail.load(std::memory_order_seq_cst) & kClosedBit) != 0;
  }

  // FPDUs precede what is in memory, up to this number.
  uint32_t first_fpdu_in_memory() const {
    return lane_.writer.fpdus.load(std::memory_order_acquire);
  }
  void note_fpdu(uint32_t next_fpdu) {
    lane_.reader.next_fpdu.store(next_fpdu, std::memory_order_release);
  }

  // Octets that were counted and not taken, as of now. Ask before arming: those are stale
  // afterwards.
  uint64_t octets_unread() const {
    const uint64_t n = lane_.writer.octets.load(std::memory_order_seq_cst) - s_.octets;
    return n <= kMostOctets ? n : 0;
  }
  // What the kernel has unread is counted, or an FPDU behind all that were. The end is read first:
  // what the writer counted before it is seen then.
  bool accounts_for_octet() const {
    const uint64_t last = lane_.writer.last_octet.load(std::memory_order_acquire);
    return octets_unread() > 0 || (last != 0 && s_.octets == last - 1);
  }
  void note_octets(size_t n) { s_.octets += n; }
  // After close(): octets_unread() is what lies, or will lie, in the kernel.
  bool are_octets_settled() const {
    return lane_.writer.settled_octets.load(std::memory_order_acquire) ==
           lane_.writer.octets.load(std::memory_order_seq_cst);
  }
  // All have been taken, and FPDUs follow.
  bool has_left() const {
    const uint64_t last = lane_.writer.last_octet.load(std::memory_order_acquire);
    return last != 0 && s_.octets == last - 1;
  }

  // They will have been, and FPDUs may be there by now.
  bool is_leaving() const { return lane_.writer.last_octet.load(std::memory_order_acquire) != 0; }

  bool is_armed() const { return lane_.bell.armed.load(std::memory_order_relaxed) != 0; }
  // The futex on which the writer sleeps; awake is what it must be told.
  std::atomic<uint32_t>& room_futex() { return lane_.bell.room_wanted; }
  uint32_t peer_cpu() const { return lane_.writer.cpu.load(std::memory_order_relaxed); }

  // The next bytes shall ring, whatever lies here.
  void ask_for_bell() {
    if (!is_armed()) lane_.bell.armed.store(1, std::memory_order_seq_cst);
  }

  // Asks for a bell. False: there are bytes by now, and the question was taken back where possible.
  bool arm() {
    if (is_armed()) return is_empty();
    shm::arm(lane_.writer.tail, lane_.bell.armed);
    if (is_empty()) return true;
    disarm(lane_.bell.armed);
    return false;
  }

 private:
  // More are never under way: sockets do not hold so many.
  static constexpr uint64_t kMostOctets = uint64_t{1} << 32;

  uint64_t head() const { return s_.head.load(std::memory_order_relaxed); }
  uint64_t tail_now() const {
    return lane_.writer.tail.load(std::memory_order_acquire) & ~kClosedBit;
  }
  // The last `size` bytes before `tail`, if that is where the tail is and all of them were copied.
  Bytes beside_tail(uint64_t tail, uint64_t size) const {
    for (const BesideTail& beside : lane_.writer.beside_tail) {
      const uint64_t tag = beside.tag.load(std::memory_order_relaxed);
      const size_t copied = BesideTail::size_in(tag);
      if (tag != BesideTail::tag_of(tail, copied)) continue;
      if (copied < size || copied > kMostBesideTail) break;
      for (size_t i = 0; i < copy_.size(); ++i)
        copy_[i] = beside.words[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (tail_now() != tail) break;
      return {reinterpret_cast<const uint8_t*>(copy_.data()) + copied - size, size};
    }
    return {nullptr, 0};
  }
  Bytes in_ring(uint64_t position, size_t begin, size_t size, size_t most, uint64_t lying) const {
    const size_t offset = static_cast<size_t>(position) & (size - 1);
    return {rings_.data() + begin + offset,
            std::min({most, static_cast<size_t>(lying), size - offset})};
  }
  // Before the head says so: the writer has no room there yet.
  void give_back(uint64_t position, size_t n) {
    if (lane_.writer.keeps_spill.load(std::memory_order_relaxed) != 0) return;
    const size_t offset = static_cast<size_t>(position) & (kSpillSize - 1);
    const size_t first = offset / kSpillPiece * kSpillPiece;
    const size_t last = std::min<size_t>(offset + n, kSpillSize) / kSpillPiece * kSpillPiece;
    if (last > first) rings_.give_back(kRingSize + first, kRingSize + last);
  }

  Lane& lane_;
  LaneRx& s_;
  Rings& rings_;
  mutable std::array<uint64_t, kMostBesideTail / 8> copy_;  // what at() has given, until the next
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_LANE_H_
