// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving where the stream lies in memory. The wire brings octets that are counted and say
// nothing. Whenever the call ends, bytes that are left in memory have an octet that is unread
// (doc/design.md decision 3, I1): the last one is taken only when the lane was found empty after it
// was armed.
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/process.h"
#include "base/spin.h"
#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/memory_receiver.h"
#include "engine/user/octets.h"
#include "engine/user/sleep.h"

namespace ddpsock::engine {
namespace {

// Taken at a time, so that a writer that waits for room goes on before all is copied.
constexpr size_t kPiece = 64 * 1024;
constexpr Duration kLinger = Duration::from_us(5);
constexpr int kLooksPerClock = 8;
constexpr uint64_t kMostBells = 64;  // more is filler, or a reader's that never comes to an end
// Locked below what the kernel would take for it, so that the lock never takes back what the peer
// was offered.
constexpr int kLockableWindow = 256 * 1024;
constexpr const char* kNonsense = "the peer wrote nonsense into the shared memory";
constexpr const char* kNotCounted = "the peer sent what it had not counted";

}  // namespace

UserStream::MemoryReceiver::MemoryReceiver(UserStream& stream, int fd, IoCursor& to, int flags,
                                           size_t& got)
    : s_(stream),
      rx_(stream.rx_),
      lane_(stream),
      fd_(stream, fd),
      to_(to),
      flags_(flags),
      got_(got) {}

Io UserStream::MemoryReceiver::run() {
  ask_for_edge();
  while (error_ == 0 && !has_left_) {
    if (take()) continue;
    if (error_ != 0 || to_.left() == 0) break;
    if (has_enough() ? !goes_on_by_wire() : !await()) break;
  }
  return finish();
}

bool UserStream::MemoryReceiver::take() {
  bool has_taken = false;
  while (to_.left() > 0) {
    const auto bytes = lane_->next(std::min(to_.left(), kPiece));
    if (bytes.is_corrupt) error_ = s_.fail_lost(fd_, kNonsense);
    if (bytes.size == 0) break;
    if ((flags_ & MSG_TRUNC) != 0) {
      to_.skip(bytes.size);
    } else {
      to_.put(bytes.data, bytes.size);
      s_.r_.received.bytes_copied.add(bytes.size);
    }
    got_ += bytes.size;
    s_.r_.received.bytes.add(bytes.size);
    if (lane_->take(bytes.size, base::current_cpu())) wake_writer();
    has_taken = true;
  }
  if (!has_taken) return false;
  vain_ = 0;
  if (lane_->octets_unread() > kMostBells) eat_filler();
  return true;
}

void UserStream::MemoryReceiver::wake_writer() {
  std::atomic<uint32_t>& futex = lane_->room_futex();
  futex.store(0, std::memory_order_relaxed);
  const base::KeepErrno keep;
  ++base::effort.system_calls;
  base::kernel_call(SYS_futex, &futex, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Once there is room again; then the writer gets its edge. An octet stays, for the bytes that are
// there.
void UserStream::MemoryReceiver::eat_filler() {
  if (lane_->size() > shm::kMostBytes / 2) return;
  const base::KeepErrno keep;
  lock_window();
  eat_many(lane_->octets_unread() - 1);
}

// A window that grew with what is eaten would make more of it the next time.
void UserStream::MemoryReceiver::lock_window() {
  if (std::exchange(s_.r_.memory.is_window_locked, true)) return;
  int size = 0;
  socklen_t length = sizeof size;
  if (base::sys.getsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, &length) != 0) return;
  if (size > kLockableWindow) return;
  size /= 2;  // the kernel doubles it
  base::sys.setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

bool UserStream::MemoryReceiver::wants_more() const {
  if (got_ == 0) return true;
  if ((flags_ & MSG_WAITALL) != 0) return true;
  return got_ < static_cast<size_t>(std::max(rx_.low_water.load(), 1));
}

// The lane is empty, and there is something to return.
bool UserStream::MemoryReceiver::has_enough() const {
  return got_ > 0 && ((flags_ & MSG_DONTWAIT) != 0 || !wants_more());
}

// The peer has left: there may be FPDUs, and only where there are none may a call return short.
bool UserStream::MemoryReceiver::goes_on_by_wire() {
  return lane_->is_leaving() && s_.take_counted_octets(fd_, 0, {}) && leave();
}

ssize_t UserStream::MemoryReceiver::eat(uint64_t most, int flags) {
  const ssize_t n = discard_octets(fd_, most, flags);
  if (n > 0) lane_->note_octets(static_cast<size_t>(n));
  // The kernel says it once; it is told behind the bytes that lie in memory.
  if (n < 0 && errno == ECONNRESET) {
    if (const int e = s_.judge_error(errno); e != 0) rx_.error = e;
    errno = ECONNRESET;
  }
  return n;
}

// As many as there are. Where the peer has no end of them the kernel goes on calling the socket
// readable, and the next call goes on.
void UserStream::MemoryReceiver::eat_many(uint64_t octets) {
  for (uint64_t left = std::min(octets, kMostOctetsAtOnce); left > 0;) {
    const ssize_t n = eat(left, MSG_DONTWAIT);
    if (n <= 0) return;
    left -= static_cast<uint64_t>(n);
  }
}

// The lane is empty. Asks for a bell, takes octets that are stale, then the kernel has the word,
// and the sleep. False: there is nothing to come, or not now.
bool UserStream::MemoryReceiver::await() {
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
bool UserStream::MemoryReceiver::may_look_again() {
  if (++vain_ <= kMostBells) return true;
  const bool may_wait = (flags_ & MSG_DONTWAIT) == 0 && !is_nonblocking(fd_);
  if (may_wait && !patience_.is_over()) return true;
  errno = EAGAIN;
  return on_end(-1);
}

// The octet that wakes it stays, for the bytes that it stands for; and the peer may leave
// meanwhile, and then this is the first of an FPDU.
bool UserStream::MemoryReceiver::sleep(int flags) {
  uint8_t octet;
  int fd = fd_;
  if (const int e = s_.await_again(fd, flags, patience_, got_ > 0); e != 0) {
    fd_.note_sleep();
    errno = e;
    return on_end(-1);
  }
  // The process may be killed in its sleep: what the record says is then what is so.
  if (flags == 0) ++base::effort.waits;
  const ssize_t n =
      sleep_in(rx_.is_asleep, [&] { return base::sys.recv(fd, &octet, 1, flags | MSG_PEEK); });
  if (flags == 0) fd_.note_sleep();
  if (n <= 0) return on_end(n);
  if (leave()) return false;
  if (lane_->octets_unread() == 0 && !lane_->is_leaving()) error_ = s_.fail_lost(fd_, kNotCounted);
  return error_ == 0;
}

// The peer has left, and this end has read all that was in memory.
bool UserStream::MemoryReceiver::leave() {
  if (!lane_->has_left() || !lane_->is_empty()) return false;
  s_.r_.memory.receiving = Way::kWireAgain;
  return has_left_ = true;
}

// A moment, whether or not the call may wait: a program that calls again and again gains by it. For
// one that does not, the cost is bounded by the habit.
bool UserStream::MemoryReceiver::linger() {
  const uint32_t cpu = lane_->peer_cpu();
  if (cpu == 0 || cpu == base::current_cpu() || !s_.habit_.may_linger(base::thread_id()))
    return false;
  const Time end = base::now() + kLinger;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (!lane_->is_empty()) {
        s_.habit_.on_lingered(true);
        return true;
      }
      base::Spin::relax();
    }
  } while (base::now() < end);
  s_.habit_.on_lingered(false);
  return false;
}

bool UserStream::MemoryReceiver::spin() {
  if (is_nonblocking(fd_)) return false;
  base::Spin& spin = base::Spin::mine();
  const uint32_t cpu = lane_->peer_cpu();
  const auto has_bytes = [&] { return !lane_->is_empty(); };
  if (spin.is_beside(cpu)) return has_spun_ = spin.by_yielding(has_bytes);
  if (!spin.is_worth(cpu, cpu)) return false;
  return has_spun_ = spin.until(has_bytes);
}

// The kernel has no more: an end, an error, or nothing now. What the peer published before that
// comes first; true if there is such a thing.
bool UserStream::MemoryReceiver::on_end(ssize_t n) {
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
  const int judged = s_.judge_error(error);
  if (judged == 0) s_.r_.memory.ends_told = kBellsToNotice;
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

// A thread that will be back in a call, and not in a poller, leaves the bell where it is: the next
// bytes then need none.
bool UserStream::MemoryReceiver::may_bell_lie() const {
  const uint32_t thread = base::thread_id();
  if (lane_->octets_unread() > kMostBells) return false;
  if (s_.lazy_thread_.load(std::memory_order_relaxed) == thread) return true;
  return !ReadingHabit::waits_for_edges() && (has_spun_ || s_.habit_.waits_in_calls(thread));
}

void UserStream::MemoryReceiver::note_habit() {
  const uint32_t thread = base::thread_id();
  if (was_empty_) {
    s_.habit_.on_empty(thread, has_spun_);
  } else if (got_ > 0) {
    s_.habit_.on_prompt(thread);
  }
}

// An edge for all that comes from now on, as TCP gives it: a program may take the stream to be
// empty after a short read, or after as many bytes as FIONREAD has told or it knew to come.
void UserStream::MemoryReceiver::ask_for_edge() {
  if (!ReadingHabit::waits_for_edges() ||
      s_.lazy_thread_.load(std::memory_order_relaxed) == base::thread_id())
    return;
  // A reader that never comes to the end must not let them fill the socket. One stays, for the
  // bytes that are there.
  const base::KeepErrno keep;
  const uint64_t unread = lane_->octets_unread();
  if (unread > kMostBells / 2) eat(std::min(unread, kMostBells) - 1, MSG_DONTWAIT);
  if (unread <= kMostBells) lane_->ask_for_bell();
}

// So that the kernel does not call the socket readable for the sake of octets that are stale.
void UserStream::MemoryReceiver::settle() {
  if (!lane_->is_empty()) return;
  const uint64_t stale = lane_->octets_unread();
  if (!lane_->arm() || stale == 0) return;
  const base::KeepErrno keep;
  if (stale > kMostBells) lock_window();
  eat_many(stale);
}

// For calls that deliver nothing. True: the lane has bytes.
bool UserStream::MemoryReceiver::refresh() {
  settle();
  return lane_->size() > 0;
}

Io UserStream::MemoryReceiver::finish() {
  note_habit();
  if (got_ > 0 && error_ == 0 && !has_left_ && !is_over_ && !may_bell_lie()) settle();
  if (got_ > 0) {
    // The kernel reports an error once; it must not be lost behind the bytes that came before it.
    if (error_ != 0 && error_ != EAGAIN && error_ != EINTR && error_ != EBADF) rx_.error = error_;
    return Io::ok(static_cast<ssize_t>(got_));
  }
  return error_ != 0 ? Io::fail(error_) : Io::ok(0);
}

// Does what comes next lie in memory? Not any more once the peer has left, and all there was read.
bool UserStream::is_next_in_memory(int fd) {
  if (is_at_memory()) begin_receiving_in_memory();
  if (r_.memory.receiving != Way::kMemory || is_beyond_reach()) return false;
  InLane lane(*this);
  if (!lane->is_leaving() || !lane->is_empty()) return true;
  take_counted_octets(fd, 0, {});
  if (!lane->has_left()) return true;
  r_.memory.receiving = Way::kWireAgain;
  return false;
}

size_t UserStream::bytes_in_memory() {
  return segment_.load(std::memory_order_acquire) != nullptr ? InLane(*this)->size() : 0;
}

// Something may lie before the error that is to be told. REQUIRES: the receive lease.
bool UserStream::has_bytes_left(int fd) {
  if (inbox_.has_bytes()) return true;
  if (r_.memory.receiving == Way::kMemory) return bytes_in_memory() > 0;
  return !is_state(StreamState::kFailed) && bytes_queued(fd) > 0;
}

size_t UserStream::look_into_memory(IoCursor& cursor, bool is_truncating) {
  InLane lane(*this);
  size_t seen = 0;
  while (cursor.left() > 0) {
    const auto bytes = lane->at(seen, cursor.left());
    if (bytes.size == 0) break;
    is_truncating ? cursor.skip(bytes.size) : cursor.put(bytes.data, bytes.size);
    seen += bytes.size;
  }
  return seen;
}

// A millisecond. False: a signal came. `fd` is -1 afterwards if it is another's by now.
bool UserStream::rest_between_looks(int& fd) {
  const bool is_whole = sleep_in(rx_.is_asleep, [] { return base::sys.poll(nullptr, 0, 1); }) == 0;
  fd = still(fd);
  return is_whole;
}

Io UserStream::peek_in_memory(int fd, std::span<const iovec> to, int flags) {
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
  const size_t room = IoCursor(to).left();
  const size_t wanted = (flags & MSG_WAITALL) != 0 && may_wait ? room : 1;
  Patience patience(fd);
  InLane lane(*this);
  for (uint64_t vain = 0;; ++vain) {
    if (lane->next(1).is_corrupt) return Io::fail(fail_lost(fd, kNonsense));
    if (lane->is_leaving() && !lane->is_empty()) return peek(fd, to, flags);
    IoCursor cursor(to);
    const size_t seen = look_into_memory(cursor, (flags & MSG_TRUNC) != 0);
    if (seen >= wanted || (seen > 0 && is_ready_now(fd, POLLRDHUP)))
      return Io::ok(static_cast<ssize_t>(seen));
    if (seen > 0) {
      // Part of what is wanted is there, so the kernel calls the socket readable all the while.
      if (patience.is_over()) return Io::ok(static_cast<ssize_t>(seen));
      if (!rest_between_looks(fd)) return Io::ok(static_cast<ssize_t>(seen));
      continue;
    }
    size_t none = 0;
    IoCursor nowhere({});
    MemoryReceiver receiver(*this, fd, nowhere, flags, none);
    if (receiver.refresh()) continue;
    if (lane->has_left() && lane->is_empty()) {
      r_.memory.receiving = Way::kWireAgain;
      return peek(fd, to, flags);
    }
    if (vain > kMostBells && (!may_wait || patience.is_over())) return Io::fail(EAGAIN);
    const int waiting = may_wait ? 0 : MSG_DONTWAIT;
    if (const int e = await_again(fd, waiting, patience, false); e != 0) {
      if (e == EAGAIN && !lane->is_empty()) continue;
      return Io::fail(e);
    }
    uint8_t byte;
    const ssize_t n =
        sleep_in(rx_.is_asleep, [&] { return base::sys.recv(fd, &byte, 1, MSG_PEEK | waiting); });
    const int error = n < 0 ? judge_error(errno) : 0;
    fd = still(fd);
    if (lane->size() > 0) {
      keep_error(error);  // the kernel says it once
      continue;
    }
    if (n <= 0) return error == 0 ? Io::ok(0) : Io::fail(error);
    if (lane->octets_unread() == 0 && !lane->is_leaving())
      return Io::fail(fail_lost(fd, kNotCounted));
  }
}

bool UserStream::is_ready_in_memory(int fd) {
  habit_.on_poller();
  InLane lane(*this);
  const auto mark = static_cast<size_t>(rx_.low_water);
  for (bool is_first = true;; is_first = false) {
    const size_t have = lane->size();
    if (have >= mark || lane->next(1).is_corrupt) return true;
    if (have > 0) return is_ready_now(fd, POLLRDHUP);
    size_t none = 0;
    IoCursor nowhere({});
    if (MemoryReceiver(*this, fd, nowhere, MSG_DONTWAIT, none).refresh()) continue;
    uint8_t byte;
    const ssize_t n = base::sys.recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    const int error = n < 0 ? errno : 0;
    if (error == ECONNRESET || error == ETIMEDOUT) keep_error(judge_error(error));
    if (lane->size() > 0) continue;
    if (n <= 0) return error != EAGAIN;
    if (lane->has_left()) return true;
    if (lane->octets_unread() == 0 && !lane->is_leaving()) {
      rx_.error = fail_lost(fd, kNotCounted);
      return true;
    }
    if (!is_first) return false;  // a bell that is late
  }
}

Glance UserStream::glance() const {
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  const Memory& m = r_.memory;
  const Way way = m.receiving.load(std::memory_order_acquire);
  if (segment == nullptr || way == Way::kWireAgain) {
    const auto state = m.state.load(std::memory_order_relaxed);
    return {.may_be_in_memory =
                state == MemoryState::kJoined || state == MemoryState::kOffered ||
                (segment == nullptr && r_.wants_memory &&
                 (state == MemoryState::kUnasked || state == MemoryState::kInvited))};
  }
  const shm::Lane& in = segment->lane_from(other(m.end));
  const uint64_t tail = in.writer.tail.load(std::memory_order_acquire);
  const uint64_t unread =
      (tail & ~shm::kClosedBit) - in.reader.head.load(std::memory_order_relaxed);
  const auto mark = static_cast<uint64_t>(rx_.low_water.load(std::memory_order_relaxed));
  const bool has_ended = in.writer.has_ended.load(std::memory_order_relaxed) != 0;
  // What comes by the wire first may still be under way there.
  const bool is_behind_wire = way == Way::kWire;
  return {
      .may_be_in_memory = true,
      .is_in_memory = true,
      .is_wire_in_use = is_behind_wire || in.writer.last_octet.load(std::memory_order_relaxed) != 0,
      .has_bytes = !is_behind_wire && (unread >= mark || (unread > 0 && has_ended)),
      .may_have_ended = has_ended,
      .position = tail,
      .peer_cpu = in.writer.cpu.load(std::memory_order_relaxed)};
}

bool UserStream::has_memory_room() const {
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  const Memory& m = r_.memory;
  if (segment == nullptr || m.sending.load(std::memory_order_relaxed) != Way::kMemory) return false;
  const shm::Lane& out = segment->lane_from(m.end);
  const uint64_t queued = out.writer.tail.load(std::memory_order_relaxed) -
                          out.reader.head.load(std::memory_order_relaxed);
  return queued <= shm::kRingSize / 2;
}

// The peer's pollers look here, and ask the kernel only if there may be something to hear.
void UserStream::note_end_in_memory() {
  shm::Segment* segment = segment_.load(std::memory_order_acquire);
  if (segment != nullptr && is_joined())
    segment->lane_from(r_.memory.end).writer.has_ended.store(1, std::memory_order_release);
}

void UserStream::settle(int fd) {
  const base::KeepErrno keep;
  Hold hold(*this, rx_.lease);
  if (const int e = hold.take(fd, Hold::kReceive, MSG_DONTWAIT); e != 0) return keep_error(e);
  // What comes first is the peer's start-up frame, and no octet.
  if (!rx_.is_started && start_receiving(fd, MSG_DONTWAIT) != 0) return;
  if (!is_next_in_memory(fd)) return;
  size_t none = 0;
  IoCursor nowhere({});
  MemoryReceiver(*this, fd, nowhere, MSG_DONTWAIT, none).refresh();
}

}  // namespace ddpsock::engine
