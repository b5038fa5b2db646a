// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sending where the stream lies in shared memory: into the ring while there is room, and by FPDUs
// when there is none and the call must not wait. EAGAIN is then the kernel's, and so is the edge
// that follows (doc/design.md decision 3, I4).
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/spin.h"
#include "base/sys.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/sender.h"

namespace ddpsock::engine {
namespace {

using shm::Publication;

// Published at a time, so that the reader begins before all is copied.
constexpr size_t kPiece = 32 * 1024;
// A ring with less room than this is not worth leaving the wire for.
constexpr size_t kWorthTheRing = shm::kRingSize / 4;
// A peer that is awake is not rung, and one that was killed awake does not say so: the kernel is
// asked every so many publications.
constexpr uint32_t kMostUnnoticed = 256;
// A writer that waits for room looks this often whether the peer lives.
// There is always room for a bell, unless the peer has seen to it that there is none.
constexpr Duration kBellPatience = Duration::from_ms(100);
constexpr Duration kLivenessCheck = Duration::from_ms(20);
constexpr size_t kMostSlices = 64;

}  // namespace

// One send call, as far as the ring takes it. REQUIRES: the send lease is held, start-up is over.
class UserStream::LaneSender {
 public:
  LaneSender(UserStream& stream, shm::LaneWriter lane, int fd, IoCursor& from, int flags)
      : s_(stream), m_(stream.r_.memory), lane_(lane), fd_(fd), from_(from), flags_(flags) {}

  // False: the rest goes over the wire.
  bool run() {
    if (m_.tx.is_on_wire && !turn_to_ring()) return false;
    while (from_.left() > 0 && error_ == 0) {
      if (put_piece()) continue;
      if (error_ != 0) break;
      if (is_over_) return turn_to_wire();
      if (wait_for_room()) continue;
      if (error_ != 0) break;
      // Also after a part: a program that waits for an edge now gets one only of the kernel.
      return turn_to_wire();
    }
    return true;
  }
  size_t sent() const { return sent_; }
  int error() const { return error_; }

 private:
  bool may_wait() {
    if (!may_wait_) may_wait_ = (flags_ & MSG_DONTWAIT) == 0 && !is_nonblocking(fd_);
    return *may_wait_;
  }

  // The first publication afterwards rings, so the kernel must have room for a bell.
  bool turn_to_ring() {
    if (send_memory(fd_).free() < 2 * kMostBellCharge) return false;
    return lane_.turn_to_ring(s_.tx_.msn, std::min(from_.left(), kWorthTheRing));
  }
  bool turn_to_wire() {
    lane_.turn_to_wire();
    return false;
  }

  bool provide(size_t end) {
    if (end <= m_.tx.populated) return true;
    const size_t to =
        std::min<size_t>(std::max<size_t>(end, 2 * size_t{m_.tx.populated}), shm::kRingSize);
    if (!shm::Segment::provide(lane_.lane(), m_.tx.populated, to)) return false;
    m_.tx.populated = static_cast<uint32_t>(to);
    return true;
  }

  // False: no room, or the lane is of no use any more (is_over_).
  bool put_piece() {
    const auto room = lane_.room(std::min(from_.left(), kPiece));
    if (room.size == 0) return false;
    if (!provide(lane_.offset() + room.size)) {
      is_over_ = true;
      return false;
    }
    IoCursor ahead = from_;
    ahead.get(room.data, room.size);
    const Publication p = lane_.publish(room.size, base::current_cpu());
    if (p == Publication::kCorrupt) {
      error_ = s_.fail_lost(fd_, "the peer wrote nonsense into the shared memory");
      return false;
    }
    if (p == Publication::kClosed) {
      m_.has_left = true;
      is_over_ = true;
      return false;
    }
    if (p == Publication::kMustRing && !ring()) return false;
    if (p == Publication::kQuiet && ++m_.unnoticed > kMostUnnoticed) look_for_end();
    from_ = ahead;
    sent_ += room.size;
    s_.r_.sent.bytes.add(room.size);
    s_.r_.sent.bytes_copied.add(room.size);
    return true;
  }

  short ends_seen() {
    m_.unnoticed = 0;
    pollfd p{fd_, POLLRDHUP, 0};
    return base::sys.poll(&p, 1, 0) > 0 ? p.revents : short{0};
  }
  // After the peer's FIN only the kernel can tell whether it still reads: a bell finds out.
  void look_for_end() {
    const short ends = ends_seen();
    if ((ends & (POLLERR | POLLHUP)) != 0) {
      m_.has_left = true;
      is_over_ = true;
    } else if (ends != 0) {
      m_.tx.must_ring = true;
    }
  }

  // False: the connection is gone, error_ says how.
  bool ring() {
    m_.unnoticed = 0;
    lane_.count_bell();
    uint8_t bell[chunk_size(0)];
    write_chunk_header(bell, 0, s_.tx_.msn);
    mpa::finish_fpdu(bell, DDP_UNTAGGED_HEADER_SIZE, s_.r_.has_crc);
    const Time deadline = base::now() + kBellPatience;
    for (;;) {
      const ssize_t n =
          base::sys.send(fd_, bell, sizeof bell, MSG_DONTWAIT | (flags_ & MSG_NOSIGNAL));
      if (n == static_cast<ssize_t>(sizeof bell)) break;
      if (n >= 0 || (errno == EAGAIN && base::now() > deadline)) {
        error_ = s_.fail_lost(fd_, "the kernel had no room for a bell");
        return false;
      }
      if (errno != EAGAIN && errno != EINTR) {
        error_ = errno;
        m_.has_left = true;
        return false;
      }
      wait_ready(fd_, POLLOUT, deadline);
    }
    ++s_.tx_.msn;
    s_.r_.sent.fpdus.add(1);
    s_.r_.sent.bells_rung.add(1);
    return true;
  }

  bool wait_for_room() {
    base::Spin& spin = base::Spin::mine();
    const uint32_t cpu = lane_.peer_cpu();
    if (spin.is_worth(cpu, cpu) && spin.until([&] { return !lane_.is_full(); })) return true;
    return !lane_.is_full() || (may_wait() && sleep_for_room());
  }

  bool sleep_for_room() {
    const Time deadline = deadline_of(fd_, SO_SNDTIMEO);
    std::atomic<uint32_t>& futex = lane_.room_futex();
    bool has_room = false;
    while (!has_room && error_ == 0) {
      if (!lane_.want_room()) {
        has_room = true;
        break;
      }
      if (lane_.is_closed() || ends_seen() != 0) break;
      const Duration left =
          deadline == kNever ? kLivenessCheck : std::min(kLivenessCheck, deadline - base::now());
      if (left.ns <= 0) {
        error_ = EAGAIN;
        break;
      }
      const timespec ts{0, left.ns};
      ++base::effort.system_calls;
      ++base::effort.waits;
      if (syscall(SYS_futex, &futex, FUTEX_WAIT, 1, &ts, nullptr, 0) != 0 && errno == EINTR &&
          !(sent_ == 0 && deadline == kNever && do_handlers_restart()))
        error_ = EINTR;
    }
    lane_.want_no_room();
    return has_room;
  }

  // What the kernel may charge for 24 bytes, with room to spare.
  static constexpr uint32_t kMostBellCharge = 4096;

  UserStream& s_;
  Memory& m_;
  shm::LaneWriter lane_;
  const int fd_;
  IoCursor& from_;
  const int flags_;
  std::optional<bool> may_wait_;
  size_t sent_ = 0;
  int error_ = 0;
  bool is_over_ = false;
};

Io UserStream::send_beside_lane(int fd, std::span<const iovec> from, int flags) {
  IoCursor rest(from);
  LaneSender lane(*this, *writing_lane(), fd, rest, flags);
  size_t sent = 0;
  if (lane.run()) {
    sent = lane.sent();
    return sent > 0 ? Io::ok(static_cast<ssize_t>(sent)) : Io::fail(lane.error());
  }
  sent = lane.sent();
  while (rest.left() > 0) {
    std::array<iovec, kMostSlices> slices;
    size_t size = rest.left();
    IoCursor ahead = rest;
    const size_t used = ahead.slice(slices, size);
    const Io io = Sender(*this, fd, {slices.data(), used}, flags).run();
    if (!io.is_ok()) return sent > 0 ? Io::ok(static_cast<ssize_t>(sent)) : io;
    sent += static_cast<size_t>(io.count);
    rest.skip(static_cast<size_t>(io.count));
    if (static_cast<size_t>(io.count) < size) break;
  }
  return Io::ok(static_cast<ssize_t>(sent));
}

}  // namespace ddpsock::engine
