// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sending where the stream lies in memory: into the ring, and nowhere else. Where there is no room
// and the call must not wait, the wire is filled with octets that say nothing, so that EAGAIN is
// the kernel's, and so is the edge that follows (doc/design.md decision 3, I4): the reader takes
// them once it has made room.
#include "stream/memory_tx.h"

#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/socket_option.h"
#include "base/spin.h"
#include "base/sys.h"
#include "stream/closing.h"
#include "stream/descriptor.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/lanes.h"
#include "stream/leaving.h"
#include "stream/memory_rx.h"
#include "stream/octets.h"
#include "stream/sender.h"
#include "stream/sleep.h"
#include "stream/spill_keeping.h"
#include "stream/tx.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

using shm::Publication;

// Published at a time, so that the reader begins before all is copied.
constexpr size_t kPiece = 32 * 1024;
// The kernel is asked every so many publications, and where it was not for so long: 10 ms or a few
// more.
constexpr uint32_t kMostUnnoticed = 256;
constexpr uint64_t kLongUnnoticed = uint64_t{1} << 25;  // ticks
// Where the kernel has no memory for a bell; the next publication rings then.
constexpr int kMostVainBells = 16;
// A writer that waits for room looks this often whether the peer lives.
constexpr Duration kLivenessCheck = Duration::from_ms(20);
// A reader that has not made room by then is doing something else.
constexpr Duration kReaderPatience = Duration::from_ms(1);
// The kernel refuses long before.
constexpr int kMostPiecesOfFiller = 1024;
constexpr size_t kMostSlices = 64;
using shm::kRoomOfAPromise;

}  // namespace

static bool may_send_in_vain(Connection& c, int error, size_t published);
static Io send_on_wire(Connection& c, int fd, IoCursor& rest, int flags);

// One send call. REQUIRES: the send lease is held, our bytes travel in memory.
class MemorySender {
 public:
  MemorySender(Connection& c, int fd, IoCursor& from, int flags)
      : c_(c), m_(c.r.memory), lane_(c), fd_(c, fd), from_(from), flags_(flags) {}

  // False: the lane is closed, and what is left in `from` has another way or none.
  bool run() {
    while (from_.left() > 0 && error_ == 0 && !is_closed_) {
      if (put_piece() || error_ != 0 || is_closed_) continue;
      if (wait_for_room() || is_closed_ || error_ != EAGAIN) continue;
      // Also after a part: a program that waits for an edge now gets one only of the kernel. A call
      // whose time is up ends, whatever room there is by now.
      if (fill_wire(1) && !may_wait()) error_ = 0;
    }
    let_go_if_calm(c_, lane_);  // what was to be sent is under way by now
    return !is_closed_;
  }
  // Is there so much room? If not, the kernel says so too.
  bool has_promised_room() {
    return lane_->left() >= kRoomOfAPromise || lane_->is_closed() || fill_wire(kRoomOfAPromise) ||
           is_closed_ || is_ready_now(fd_, POLLOUT);
  }
  // What the kernel refuses for want of room is not owed: there is an octet on its way, or unread.
  // False: the connection is gone, error_ says how. The first send after a clean end succeeds and
  // is dropped, as TCP does it.
  bool ring(size_t published) {
    note_noticed();
    ssize_t n = send_octets(1, 0);
    c_.r.sent.bells_rung.add(1);
    for (int i = 0; n < 0 && is_kernel_short(); ++i) {
      if (i == kMostVainBells) {
        m_.tx.must_ring = true;
        return true;
      }
      base::kernel_call(SYS_sched_yield);
      n = send_octets(1, 0);
    }
    if (n >= 0 || errno == EAGAIN) return true;
    // Published before another thread's shutdown closed the lane: the FIN rings for it.
    if (c_.tx.is_shut) return true;
    if (may_send_in_vain(c_, errno, published)) return true;
    return fail_gone(errno);
  }
  size_t sent() const { return sent_; }
  int error() const { return error_; }
  bool is_gone() const { return is_gone_; }

 private:
  bool may_wait() {
    if (!may_wait_) may_wait_ = (flags_ & MSG_DONTWAIT) == 0 && !is_nonblocking(fd_);
    return *may_wait_;
  }

  // False: no room, or an end.
  bool put_piece() {
    const auto room = lane_->room(std::min(from_.left(), kPiece));
    if (room.size == 0) return false;
    IoCursor ahead = from_;
    ahead.get(room.data, room.size);
    lane_->put_beside_tail(room.data, room.size);
    const Publication p = lane_->publish(room.size, base::current_cpu());
    if (p == Publication::kCorrupt) {
      error_ = fail_lost(c_, fd_, "the peer wrote nonsense into the shared memory");
      return false;
    }
    if (p == Publication::kClosed) {
      is_closed_ = true;
      return false;
    }
    if (p == Publication::kMustRing || is_end_to_be_noticed()) {
      if (!ring(room.size)) return false;
    } else if (is_look_at_peer_due(m_)) {
      // Only the kernel can tell whether the peer still reads: a bell finds out.
      if (ends_seen() != 0 && !ring(room.size)) return false;
    } else {
      ++m_.unnoticed;
    }
    if (is_watched()) [[unlikely]]
      tell_in_memory(c_, Observer::Way::kSent, {room.data, room.size});
    from_ = ahead;
    sent_ += room.size;
    c_.r.sent.bytes.add(room.size);
    c_.r.sent.bytes_copied.add(room.size);
    return true;
  }

  void note_noticed() {
    m_.unnoticed = 0;
    m_.noticed_at = base::ticks();
  }
  short ends_seen() {
    note_noticed();
    pollfd p{fd_, POLLRDHUP, 0};
    return base::sys.poll(&p, 1, 0) > 0 ? p.revents : short{0};
  }
  // The program was told of the peer's end: a bell brings the reset, the next one finds it.
  bool is_end_to_be_noticed() {
    const uint8_t left = m_.ends_told.load(std::memory_order_relaxed);
    if (left == 0) [[likely]]
      return false;
    m_.ends_told.store(static_cast<uint8_t>(left - 1), std::memory_order_relaxed);
    return true;
  }

  // Sends octets that are counted. How many, or -1 with errno; 0: the lane is closed.
  ssize_t send_octets(size_t n, int flags) {
    if (!lane_->count(n)) return 0;
    const base::Uncancelled whole;  // or what is published is not rung for
    const ssize_t sent = base::sys.send(fd_, octets_memory, n, MSG_DONTWAIT | MSG_NOSIGNAL | flags);
    lane_->settle(n - static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    return sent;
  }

  // The kernel has no memory for an octet: that is no fate of the connection's, and no want of
  // room.
  bool is_kernel_short() const {
    if (errno == ENOMEM || errno == ENOBUFS || errno == EINTR) return true;
    return errno == EAGAIN && is_ready_now(fd_, POLLOUT);
  }

  // The next send finds out again.
  bool fail_gone(int error) {
    error_ = error;
    is_gone_ = m_.tx.must_ring = true;
    return false;
  }

  bool spill() {
    if (!std::exchange(is_need_noted_, true)) note_spill_need(c_, lane_);
    return lane_->lend_spill();
  }
  // Where that needs no memory, or what it gets stays.
  bool spill_if_kept() {
    if (!std::exchange(is_need_noted_, true)) note_spill_need(c_, lane_);
    return lane_->keeps_spill() && lane_->lend_spill();
  }

  bool wait_for_room() {
    is_need_noted_ = false;
    base::Spin& spin = base::Spin::mine();
    const uint32_t cpu = lane_->peer_cpu();
    if (spin.is_worth(cpu, cpu) && spin.until([&] { return !lane_->is_full(); })) return true;
    if (!lane_->is_full()) return true;
    // It makes no room before this thread sleeps.
    if (spin.is_beside(cpu) && spill_if_kept()) return true;
    if (may_wait()) return sleep_for_room();
    if (spill()) return true;
    error_ = EAGAIN;
    return false;
  }

  // A reader that is busy reading makes room in the ring; where it does not in time the large one
  // is lent.
  bool sleep_for_room() {
    if (!deadline_) deadline_ = deadline_of(fd_, SO_SNDTIMEO);
    const Time deadline = *deadline_;
    std::atomic<uint32_t>& futex = lane_->room_futex();
    bool has_room = false;
    for (bool is_first = true; !has_room && error_ == 0; is_first = false) {
      if (!lane_->want_room()) {
        has_room = true;
        break;
      }
      if ((is_closed_ = lane_->is_closed()) || (!is_first && spill()) || has_ended()) break;
      if (!is_first && has_user_timeout() && fill_wire(1)) break;
      if (error_ == EAGAIN) error_ = 0;
      Duration left = is_first ? kReaderPatience : kLivenessCheck;
      if (deadline != kNever) left = std::min(left, deadline - base::now());
      if (left.ns <= 0) {
        // There may be room that only patience has kept back.
        if (!spill()) error_ = EAGAIN;
        break;
      }
      sleep_on(futex, left, deadline);
    }
    lane_->want_no_room();
    return error_ == 0 && !is_closed_;
  }
  // TCP_USER_TIMEOUT is the kernel's to measure, by what it cannot send.
  bool has_user_timeout() {
    if (has_user_timeout_) return *has_user_timeout_;
    const int ms = base::socket_option(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT).value_or(0);
    return *(has_user_timeout_ = ms != 0);
  }
  void sleep_on(std::atomic<uint32_t>& futex, Duration most, Time deadline) {
    const timespec ts{0, most.ns};
    const uint32_t wanted = futex.load(std::memory_order_relaxed);
    if (wanted == 0) return;
    ++base::effort.system_calls;
    ++base::effort.waits;
    // What is published is counted: who dies here leaves all as it should be.
    const ssize_t woken = sleep_in(c_.tx.is_asleep, [&] {
      return base::kernel_call(SYS_futex, &futex, FUTEX_WAIT, wanted, &ts, nullptr, 0);
    });
    const bool is_interrupted = woken != 0 && errno == EINTR;
    if (fd_.is_copy()) [[unlikely]] {
      error_ = EINTR;
      return;
    }
    fd_.note_slice();
    const bool restarts =
        is_interrupted && sent_ == 0 && deadline == kNever && do_handlers_restart();
    if (is_interrupted && !restarts) error_ = EINTR;
    if (fd_ < 0 || (restarts && !fd_.can_restart())) error_ = EBADF;
  }

  // A peer that has sent its FIN may still read: a bell finds out.
  bool has_ended() {
    const short ends = ends_seen();
    if ((ends & (POLLERR | POLLHUP)) != 0) {
      const int error = base::socket_option(fd_, SOL_SOCKET, SO_ERROR).value_or(0);
      return !fail_gone(error != 0 ? error : EPIPE);
    }
    if (ends != 0) send_octets(1, 0);
    return false;
  }

  // Until the kernel refuses. True: there is room after all, for so much.
  bool fill_wire(size_t wanted) {
    if (is_gone_) return false;
    if (!std::exchange(m_.is_filled, true)) set_unsent_limit(1);
    // A small send buffer is full before the peer's window is, and empty soon after.
    for (int i = 0; i < kMostPiecesOfFiller; ++i) {
      const ssize_t n = send_octets(kMostFiller, MSG_EOR);
      if (n > 0) continue;
      // Where there is room again the next bell tells, and judges, what has become of the peer.
      const bool is_over =
          n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOMEM && errno != ENOBUFS;
      if (is_over && !c_.tx.is_shut && lane_->is_full()) return fail_gone(errno);
      if (n == 0 || is_over || !is_ready_now(fd_, POLLOUT)) break;
    }
    if (lane_->is_closed()) return is_closed_ = true;
    if (lane_->left() < wanted) {
      error_ = EAGAIN;
      return false;
    }
    // Nobody may come to eat what was sent after it looked.
    m_.is_filled = false;
    set_unsent_limit(m_.unsent_limit);
    return true;
  }
  void set_unsent_limit(int bytes) {
    base::set_socket_option(fd_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
  }

  Connection& c_;
  Memory& m_;
  OutLane lane_;
  Descriptor fd_;
  IoCursor& from_;
  const int flags_;
  std::optional<bool> may_wait_;
  std::optional<Time> deadline_;  // of the whole call
  std::optional<bool> has_user_timeout_;
  size_t sent_ = 0;
  int error_ = 0;
  bool is_closed_ = false;
  bool is_gone_ = false;
  bool is_need_noted_ = false;  // of this wait for room
};

// For good: it has closed, and not left the memory.
static bool has_peer_ended(const Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  return segment != nullptr && !c.r.memory.has_left &&
         segment->lane_from(other(c.r.memory.end)).writer.has_ended.load() != 0;
}

// REQUIRES: the send lease.
Io send_in_memory(Connection& c, int fd, std::span<const iovec> from, int flags) {
  if (c.tx.is_shut) return broken_pipe(fd, flags);
  IoCursor rest(from);
  MemorySender sender(c, fd, rest, flags);
  const bool is_open = sender.run();
  const size_t sent = sender.sent();
  const auto done = Io::ok(static_cast<ssize_t>(sent));
  if (is_open && (sent > 0 || sender.error() == 0)) return sent_or_error(c, sent, sender.error());
  if (is_open && sender.is_gone() && sender.error() == EPIPE) return broken_pipe(fd, flags);
  if (is_open) return Io::fail(sender.error());
  fd = still(c, fd);
  if (c.tx.is_shut) {
    end_spill(c);
    return sent > 0 ? done : broken_pipe(fd, flags);
  }
  leave_as_writer(c, fd);
  const bool is_in_vain = is_reset_in_vain(c, 0) && !c.r.memory.has_sent_in_vain;
  const auto left = static_cast<ssize_t>(rest.left());
  const Io io = send_on_wire(c, fd, rest, is_in_vain || sent > 0 ? flags | MSG_NOSIGNAL : flags);
  if (io.is_ok()) {
    if (has_peer_ended(c)) c.r.memory.has_sent_in_vain = true;
    return Io::ok(static_cast<ssize_t>(sent) + io.count);
  }
  if (may_send_in_vain(c, io.error, 0)) return Io::ok(static_cast<ssize_t>(sent) + left);
  return sent_or_error(c, sent, io.error);
}

bool is_look_at_peer_due(const Memory& m) {
  return m.unnoticed >= kMostUnnoticed || base::ticks() - m.noticed_at > kLongUnnoticed;
}

Io ring_for_published(Connection& c, int fd, size_t n, int flags) {
  const base::KeepErrno keep;
  IoCursor nothing({});
  MemorySender sender(c, fd, nothing, flags);
  if (sender.ring(n)) {
    c.r.sent.bytes.add(n);
    c.r.sent.bytes_copied.add(n);
    return Io::ok(static_cast<ssize_t>(n));
  }
  return sender.error() == EPIPE ? broken_pipe(fd, flags) : Io::fail(sender.error());
}

// As far as can be seen while another call is at work there.
static bool has_promised_room(const Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return true;
  const shm::Lane& out = segment->lane_from(c.r.memory.end);
  const uint64_t tail = out.writer.tail.load(std::memory_order_acquire) & ~shm::kClosedBit;
  const uint64_t queued = tail - out.reader.head.load(std::memory_order_acquire);
  return queued + kRoomOfAPromise <= shm::kMostBytes;
}

bool is_send_ready(Connection& c, int fd) {
  const base::KeepErrno keep;
  if (c.r.memory.sending != Way::kMemory || !c.is_joined()) return true;
  Hold hold(c, c.tx.lease);
  switch (hold.attempt()) {
    case base::Lease::Outcome::kAcquired:
      break;
    case base::Lease::Outcome::kInherited:
      if (const int e = hold.inherit(fd); e != 0) {
        c.tx.error = e;
        return true;
      }
      break;
    default:
      return has_promised_room(c);
  }
  if (c.r.memory.sending != Way::kMemory || c.tx.is_shut || !c.is_joined()) return true;
  IoCursor nothing({});
  return MemorySender(c, fd, nothing, MSG_DONTWAIT).has_promised_room();
}

// After a reset that destroyed nothing, the first send succeeds and is dropped: so it is on TCP
// after a clean end, and the reset that it brings is told once. `published`: in vain, of this call.
static bool may_send_in_vain(Connection& c, int error, size_t published) {
  if (error != EPIPE && error != ECONNRESET) return false;
  if (c.r.memory.has_sent_in_vain || !is_reset_in_vain(c, published)) return false;
  c.tx.error = EPIPE;
  return c.r.memory.has_sent_in_vain = true;
}

// The rest of a call, where there is no more than a gather list holds at a time.
static Io send_on_wire(Connection& c, int fd, IoCursor& rest, int flags) {
  size_t sent = 0;
  while (rest.left() > 0) {
    std::array<iovec, kMostSlices> slices;
    size_t size = rest.left();
    IoCursor ahead = rest;
    const size_t used = ahead.slice(slices, size);
    const int signal = sent > 0 ? MSG_NOSIGNAL : 0;  // a call that returns a part raises none
    const Io io = Sender(c, fd, {slices.data(), used}, flags | signal).run();
    if (!io.is_ok()) return sent_or_error(c, sent, io.error);
    sent += static_cast<size_t>(io.count);
    rest.skip(static_cast<size_t>(io.count));
    if (static_cast<size_t>(io.count) < size) break;
  }
  return Io::ok(static_cast<ssize_t>(sent));
}

}  // namespace ddpsock::engine
