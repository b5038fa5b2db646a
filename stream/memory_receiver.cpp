// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving where the stream lies in memory. The wire brings octets that are counted and say
// nothing. Whenever the call ends, bytes that are left in memory have an octet that is unread
// (doc/design.md decision 3, I1): the last one is taken only when the lane was found empty after it
// was armed.
#include "stream/memory_receiver.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>

#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/socket_option.h"
#include "base/spin.h"
#include "base/sys.h"
#include "stream/failure.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/leaving.h"
#include "stream/memory_rx.h"
#include "stream/octets.h"
#include "stream/reading_habit.h"
#include "stream/rx.h"
#include "stream/sleep.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

// Taken at a time, so that a writer that waits for room goes on before all is copied.
constexpr size_t kPiece = 64 * 1024;
constexpr Duration kLinger = Duration::from_us(5);
constexpr int kLooksPerClock = 8;
// Locked below what the kernel would take for it, so that the lock never takes back what the peer
// was offered.
constexpr int kLockableWindow = 256 * 1024;

}  // namespace

MemoryReceiver::MemoryReceiver(Connection& c, int fd, IoCursor& to, int flags, size_t& got)
    : c_(c), rx_(c.rx), lane_(c), fd_(c, fd), to_(to), flags_(flags), got_(got) {}

Io MemoryReceiver::run() {
  ask_for_edge();
  while (error_ == 0 && !has_left_) {
    take();
    if (error_ != 0 || to_.left() == 0) break;
    if (has_enough() ? !goes_on_by_wire() : !await()) break;
  }
  return finish();
}

// All that is there and has room.
void MemoryReceiver::take() {
  bool has_taken = false;
  while (to_.left() > 0) {
    const auto bytes = lane_->next(std::min(to_.left(), kPiece));
    if (bytes.is_corrupt) error_ = fail_lost(c_, fd_, kNonsense);
    if (bytes.size == 0) break;
    if ((flags_ & MSG_TRUNC) != 0) {
      to_.skip(bytes.size);
    } else {
      to_.put(bytes.data, bytes.size);
      c_.r.received.bytes_copied.add(bytes.size);
    }
    if (is_watched()) [[unlikely]]
      tell_taken(c_, bytes.size, [this] {
        const auto all = lane_->next(kPiece);
        return Bytes(all.data, all.size);
      });
    got_ += bytes.size;
    c_.r.received.bytes.add(bytes.size);
    if (lane_->take(bytes, base::current_cpu())) wake_writer(*lane_);
    has_taken = true;
  }
  if (!has_taken) return;
  base::Spin::mine().note_peer(lane_->peer_cpu());
  vain_ = 0;
  if (lane_->octets_unread() > kMostBells) eat_filler();
}

void wake_writer(shm::LaneReader& lane) {
  std::atomic<uint32_t>& futex = lane.room_futex();
  futex.store(0, std::memory_order_relaxed);
  const base::KeepErrno keep;
  ++base::effort.system_calls;
  base::kernel_call(SYS_futex, &futex, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Once there is room again; then the writer gets its edge. An octet stays, for the bytes that are
// there.
void MemoryReceiver::eat_filler() {
  if (lane_->size() > shm::kMostBytes / 2) return;
  const base::KeepErrno keep;
  lock_window();
  eat_many(lane_->octets_unread() - 1);
}

// A window that grew with what is eaten would make more of it the next time.
void MemoryReceiver::lock_window() {
  if (std::exchange(c_.r.memory.is_window_locked, true)) return;
  const auto size = base::socket_option(fd_, SOL_SOCKET, SO_RCVBUF);
  if (!size || *size > kLockableWindow) return;
  base::set_socket_option(fd_, SOL_SOCKET, SO_RCVBUF, *size / 2);  // the kernel doubles it
}

bool MemoryReceiver::wants_more() const {
  if (got_ == 0) return true;
  if ((flags_ & MSG_WAITALL) != 0) return true;
  return got_ < static_cast<size_t>(std::max(rx_.low_water.load(), 1));
}

// The lane is empty, and there is something to return.
bool MemoryReceiver::has_enough() const {
  return got_ > 0 && ((flags_ & MSG_DONTWAIT) != 0 || !wants_more());
}

// The peer has left: there may be FPDUs, and only where there are none may a call return short.
bool MemoryReceiver::goes_on_by_wire() {
  return lane_->is_leaving() && take_counted_octets(c_, fd_, 0, {}) && leave();
}

ssize_t MemoryReceiver::eat(uint64_t most, int flags) {
  const ssize_t n = discard_octets(fd_, most, flags);
  if (n > 0) lane_->note_octets(static_cast<size_t>(n));
  // The kernel says it once; it is told behind the bytes that lie in memory.
  if (n < 0) {
    const base::KeepErrno keep;
    keep_error(c_, judge_error(c_, errno));
  }
  return n;
}

// As many as there are. Where the peer has no end of them the kernel goes on calling the socket
// readable, and the next call goes on.
void MemoryReceiver::eat_many(uint64_t octets) {
  for (uint64_t left = std::min(octets, kMostOctetsAtOnce); left > 0;) {
    const ssize_t n = eat(left, MSG_DONTWAIT);
    if (n <= 0) return;
    left -= static_cast<uint64_t>(n);
  }
}

// The lane is empty. Asks for a bell, takes octets that are stale, then the kernel has the word,
// and the sleep. False: there is nothing to come, or not now.
bool MemoryReceiver::await() {
  was_empty_ = true;
  const bool may_wait = (flags_ & MSG_DONTWAIT) == 0;
  if (linger() || (may_wait && spin())) return true;
  const uint64_t stale = lane_->octets_unread();
  if (!lane_->arm()) return true;
  if (lane_->is_closed() && leave()) return false;
  if (stale > 0) {
    const ssize_t n = eat(stale, MSG_DONTWAIT);
    if (n > 0) return may_look_again();
    if (n == 0 || errno != EAGAIN) return on_end(n);
  }
  return sleep(may_wait ? 0 : MSG_DONTWAIT);
}

// A peer can send octets without bytes as fast as they are eaten.
bool MemoryReceiver::may_look_again() {
  if (++vain_ <= kMostBells) return true;
  const bool may_wait = (flags_ & MSG_DONTWAIT) == 0 && !is_nonblocking(fd_);
  patience_.follow(fd_);
  if (may_wait && !patience_.is_over()) return true;
  errno = EAGAIN;
  return on_end(-1);
}

// As Patience::before_read() has it: 0, or the errno that ends the call. Whoever closed the number
// meanwhile leaves it what outlives that, this time too.
int MemoryReceiver::await_again(int flags) {
  if ((flags & MSG_DONTWAIT) != 0) return 0;
  patience_.follow(fd_);
  const std::optional<Time> until = patience_.before_read(got_ > 0);
  if (!until) return 0;
  const int e = sleep_until_ready(rx_.is_asleep, fd_, POLLIN, *until);
  fd_.note_sleep();
  return fd_ < 0 ? EBADF : e;
}

// A socket that does not wait is not asked each time whether it does. One of which a time was up
// is none.
void MemoryReceiver::note_sleep_or_refusal(int error) {
  const base::KeepErrno keep;
  const bool was = c_.was_nonblocking.load(std::memory_order_relaxed);
  fd_.note_sleep();
  const bool is = error == EAGAIN && fd_ >= 0 && (was || is_nonblocking(fd_));
  if (was != is) c_.was_nonblocking.store(is, std::memory_order_relaxed);
}

// The octet that wakes it stays, for the bytes that it stands for; and the peer may leave
// meanwhile, and then this is the first of an FPDU.
bool MemoryReceiver::sleep(int flags) {
  uint8_t octet;
  if (const int e = await_again(flags); e != 0) {
    errno = e;
    return on_end(-1);
  }
  const int fd = fd_;
  // The process may be killed in its sleep: what the record says is then what is so.
  if (flags == 0) ++base::effort.waits;
  const ssize_t n =
      ask_in(rx_.is_asleep, flags, [&] { return base::sys.recv(fd, &octet, 1, flags | MSG_PEEK); });
  if (flags == 0) note_sleep_or_refusal(n < 0 ? errno : 0);
  if (n <= 0) return on_end(n);
  if (leave()) return false;
  if (!lane_->accounts_for_octet()) error_ = fail_lost(c_, fd_, kNotCounted);
  return error_ == 0;
}

// The peer has left, and this end has read all that was in memory.
bool MemoryReceiver::leave() {
  if (!lane_->has_left() || !lane_->is_empty()) return false;
  c_.r.memory.receiving = Way::kWireAgain;
  return has_left_ = true;
}

// A moment, whether or not the call may wait: a program that calls again and again gains by it. For
// one that does not, the cost is bounded by the habit.
bool MemoryReceiver::linger() {
  const uint32_t cpu = lane_->peer_cpu();
  if (cpu == 0 || cpu == base::current_cpu() || !c_.habit.may_linger(base::thread_id()))
    return false;
  const Time end = base::now() + kLinger;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (!lane_->is_empty()) {
        c_.habit.on_lingered(true);
        return true;
      }
      base::Spin::relax();
    }
  } while (base::now() < end);
  c_.habit.on_lingered(false);
  return false;
}

bool MemoryReceiver::spin() {
  if (c_.was_nonblocking.load(std::memory_order_relaxed) || is_nonblocking(fd_)) return false;
  base::Spin& spin = base::Spin::mine();
  const uint32_t cpu = lane_->peer_cpu();
  const auto has_bytes = [&] { return !lane_->is_empty(); };
  if (spin.is_beside(cpu)) return has_spun_ = spin.by_yielding(has_bytes);
  if (!spin.is_worth(cpu, cpu)) return false;
  return has_spun_ = spin.until(has_bytes);
}

// The kernel has no more: an end, an error, or nothing now. What the peer published before that
// comes first; true if there is such a thing.
bool MemoryReceiver::on_end(ssize_t n) {
  const int error = n < 0 ? errno : 0;
  if (error == EINTR) {
    error_ = EINTR;
    return false;
  }
  if (error == EAGAIN || error == EBADF) {
    if (!lane_->is_empty()) return true;
    if (got_ == 0) error_ = error;
    is_over_ = true;
    return false;
  }
  const int judged = judge_error(c_, error);
  if (judged == 0) c_.r.memory.ends_told = kBellsToNotice;
  if (lane_->is_empty()) {
    error_ = judged;
    is_over_ = true;
    return false;
  }
  // The kernel says it once.
  rx_.error = judged;
  take();
  if (lane_->is_empty() || to_.left() == 0) is_over_ = true;
  return false;
}

bool may_bell_lie(const Connection& c, uint64_t octets, bool has_spun) {
  const uint32_t thread = base::thread_id();
  if (octets > kMostBells) return false;
  if (c.lazy_thread.load(std::memory_order_relaxed) == thread) return true;
  return !ReadingHabit::waits_for_edges() &&
         (has_spun || c.habit.waits_in_calls(thread) || c.habit.polls(thread));
}

void MemoryReceiver::note_habit() {
  const uint32_t thread = base::thread_id();
  if (was_empty_) {
    c_.habit.on_empty(thread, has_spun_);
  } else if (got_ > 0) {
    c_.habit.on_prompt(thread);
  }
}

// An edge for all that comes from now on, as TCP gives it: a program may take the stream to be
// empty after a short read, or after as many bytes as FIONREAD has told or it knew to come.
void MemoryReceiver::ask_for_edge() {
  if (!ReadingHabit::waits_for_edges() ||
      c_.lazy_thread.load(std::memory_order_relaxed) == base::thread_id())
    return;
  // A reader that never comes to the end must not let them fill the socket. One stays, for the
  // bytes that are there.
  const base::KeepErrno keep;
  const uint64_t unread = lane_->octets_unread();
  if (unread > kMostBells / 2) eat(std::min(unread, kMostBells) - 1, MSG_DONTWAIT);
  if (unread <= kMostBells) lane_->ask_for_bell();
}

// So that the kernel does not call the socket readable for the sake of octets that are stale.
void MemoryReceiver::settle() {
  if (!lane_->is_empty()) return;
  const uint64_t stale = lane_->octets_unread();
  if (!lane_->arm() || stale == 0) return;
  const base::KeepErrno keep;
  if (stale > kMostBells) lock_window();
  eat_many(stale);
}

void settle_behind(Connection& c, int fd, shm::LaneReader& lane) {
  if (!lane.is_empty()) return;
  if (lane.octets_unread() == 0) {
    (void)lane.arm();
    return;
  }
  size_t none = 0;
  IoCursor nowhere({});
  (void)MemoryReceiver(c, fd, nowhere, MSG_DONTWAIT, none).refresh();
}

// For calls that deliver nothing. True: the lane has bytes.
bool MemoryReceiver::refresh() {
  settle();
  return lane_->size() > 0;
}

Io MemoryReceiver::finish() {
  note_habit();
  if (got_ > 0 && error_ == 0 && !has_left_ && !is_over_ &&
      !may_bell_lie(c_, lane_->octets_unread(), has_spun_))
    settle();
  if (got_ > 0) {
    // The kernel reports an error once; it must not be lost behind the bytes that came before it.
    if (error_ != 0 && error_ != EAGAIN && error_ != EINTR && error_ != EBADF) rx_.error = error_;
    return Io::ok(static_cast<ssize_t>(got_));
  }
  if (error_ != 0) return Io::fail(error_);
  return is_over_ && !has_left_ ? end_of_stream(c_) : Io::ok(0);
}

}  // namespace ddpsock::engine
