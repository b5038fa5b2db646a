// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a stream leaves the memory it shares with its peer: for the wire, because a program without a
// part in it is executed or one-sided operations begin, or for good, when the connection ends.
//
// Who leaves closes both lanes. Each writer then knows what it has published and that it sends no
// octet more; FPDUs follow those that are counted.
#include "stream/leaving.h"

#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <climits>
#include <utility>

#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/socket_option.h"
#include "base/spin.h"
#include "base/sys.h"
#include "stream/closing.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/kernel_socket.h"
#include "stream/lanes.h"
#include "stream/memory_rx.h"
#include "stream/memory_start.h"
#include "stream/octets.h"
#include "stream/rx.h"
#include "stream/spill_keeping.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

// What is counted is sent at once, unless its sender was stopped in between. Closing must not wait
// for that; leaving must, because FPDUs follow.
constexpr Duration kAtClose = Duration::from_us(100), kAtLeave = Duration::from_ms(200);

// It sleeps for want of room, and looks again.
void wake_writer(shm::Lane& lane) {
  std::atomic<uint32_t>& futex = lane.bell.room_wanted;
  if (futex.exchange(0) != 0)
    base::kernel_call(SYS_futex, &futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void close_both_lanes(shm::Segment& segment) {
  for (const shm::End end : {shm::End::kConnected, shm::End::kAccepted})
    shm::close_lane(segment.lane_from(end).writer.tail);
}

}  // namespace

static void end_receiving(Connection& c, int fd);
static void await_writer(Connection& c);
static bool has_left_a_sleeper(Connection& c);

bool take_counted_octets(Connection& c, int fd, uint64_t stays, Duration patience) {
  InLane lane(c);
  const Time end = base::now() + patience;
  // More than was counted at first, or than anybody can have counted, comes only of a peer that
  // goes on in spite of all.
  const uint64_t most = std::min(lane->octets_unread(), kMostOctetsAtOnce);
  for (uint64_t taken = 0;;) {
    const uint64_t unread = lane->octets_unread();
    // One that is counted may still be under way, or be taken back.
    if (unread <= stays && (unread == 0 || bytes_queued(fd) >= unread)) return true;
    ssize_t n = -1;
    errno = EAGAIN;
    if (unread > stays) n = discard_octets(fd, unread - stays, MSG_DONTWAIT);
    if (n > 0) {
      lane->note_octets(static_cast<size_t>(n));
      taken += static_cast<uint64_t>(n);
      if (taken > most && base::now() > end) return false;
    } else if (n == 0 || errno != EAGAIN || base::now() > end) {
      // The kernel says it once.
      if (n < 0) keep_error(c, judge_error(c, errno));
      return false;
    } else {
      sched_yield();
    }
  }
}

static void wake_peers_writer(Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  wake_writer(segment->lane_from(other(c.r.memory.end)));
}

// The stream may have moved to memory for the peer while bytes lie here that came before that: its
// part of the memory does not say that they were not read. REQUIRES: this end is about to close.
static void note_unread_before_memory(Connection& c, int fd) {
  if (c.r.memory.receiving != Way::kWire) return;
  if (c.inbox.has_bytes() || (fd >= 0 && bytes_queued(fd) > 0)) note_linger(c, true);
}

void end_in_memory(Connection& c, int fd) {
  const base::KeepErrno keep;
  note_unread_before_memory(c, fd);
  note_end_in_memory(c);
  OutLane(c)->close();
  end_spill(c);
  end_receiving(c, fd);
}

static void end_receiving(Connection& c, int fd) {
  InLane in(c);
  in->close();
  wake_peers_writer(c);
  if (fd < 0 || c.r.memory.receiving != Way::kMemory) return;
  if (in->is_empty()) {
    take_counted_octets(c, fd, 0, kAtClose);
  } else if (in->octets_unread() == 0) {
    base::set_socket_option(fd, SOL_SOCKET, SO_LINGER, linger{1, 0});
  }
}

// What is published stays in the memory, and the kernel sends the FIN. A thread that sleeps in recv
// has left no octet.
void before_exit(Connection& c, int fd) {
  const base::KeepErrno keep;
  take_unread_words_beside_relatives(c, fd);
  if (c.segment.load(std::memory_order_acquire) == nullptr) return;
  if (!c.arena.records.is_sole_holder(&c.r) || !is_my_cookie(c, fd)) return;
  note_unread_before_memory(c, fd);
  if (c.r.memory.receiving != Way::kMemory) return;
  Hold hold(c, c.rx.lease);
  if (hold.try_take()) end_receiving(c, fd);
}

bool is_reset_in_vain(const Connection& c, size_t since) {
  const Memory& m = c.r.memory;
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || !segment->has_moved() || m.has_left) return false;
  const shm::Lane& out = segment->lane_from(m.end);
  const shm::Lane& in = segment->lane_from(other(m.end));
  const uint64_t tail = out.writer.tail.load(std::memory_order_acquire) & ~shm::kClosedBit;
  return tail - out.reader.head.load(std::memory_order_acquire) <= since &&
         in.writer.is_resetting.load(std::memory_order_relaxed) == 0;
}

void close_for_sending(Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return;
  c.tx.is_shut = true;
  shm::Lane& lane = segment->lane_from(c.r.memory.end);
  shm::close_lane(lane.writer.tail);
  wake_writer(lane);
}

void close_for_receiving(Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  std::atomic<MemoryState>& state = c.r.memory.state;
  for (MemoryState not_yet : {MemoryState::kUnasked, MemoryState::kInvited})
    state.compare_exchange_strong(not_yet, MemoryState::kNotWanted);
  if (segment == nullptr || (state != MemoryState::kJoined && state != MemoryState::kOffered))
    return;
  if (segment->stay_on_wire()) return;
  shm::close_lane(segment->lane_from(other(c.r.memory.end)).writer.tail);
  wake_peers_writer(c);
}

void fail_in_memory(Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return;
  note_linger(c, true);
  close_both_lanes(*segment);
  wake_peers_writer(c);
}

static bool is_peer_on_wire(const Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  return segment->lane_from(other(c.r.memory.end)).writer.last_octet.load() != 0;
}

short untrue_at_end(const Connection& c) {
  // A program that has sent in vain is told, as on TCP.
  if (c.r.memory.has_sent_in_vain || !is_reset_in_vain(c, 0)) return 0;
  // So is one that reads no more: what the peer sends goes by the wire then, and is refused there.
  if (is_peer_on_wire(c)) return 0;
  return c.tx.is_shut ? POLLERR : POLLERR | POLLHUP;
}

// It is by this end's own kernel then.
static bool is_peer_refused(const Connection& c) {
  return c.tx.is_shut && c.rx.is_shut && is_peer_on_wire(c);
}

// A program that has sent in vain is told, as on TCP.
int judge_error(Connection& c, int error) {
  if (error != ECONNRESET || c.r.memory.has_sent_in_vain) return error;
  if (!is_reset_in_vain(c, 0) || is_peer_refused(c)) return error;
  c.r.memory.ends_told = kBellsToNotice;
  return 0;
}

void note_linger(Connection& c, bool is_resetting) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return;
  segment->lane_from(c.r.memory.end)
      .writer.is_resetting.store(is_resetting ? 1 : 0, std::memory_order_relaxed);
}

static MemoryState left_state(const Connection& c) {
  return c.r.one_sided_owner.load() != 0 ? MemoryState::kYielded : MemoryState::kLeft;
}

// REQUIRES: the send lease. FPDUs follow.
void leave_as_writer(Connection& c, int fd) {
  Memory& m = c.r.memory;
  OutLane lane(c);
  lane->close();
  lane->leave();
  end_spill(c);
  if (std::exchange(m.is_filled, false) && !m.has_set_options)
    base::set_socket_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, m.unsent_limit);
  send_fpdus_for_good(c, fd);
}

// REQUIRES: the send lease.
static void give_options_back(Connection& c, int fd) {
  Memory& m = c.r.memory;
  if (!m.has_set_options) return;
  m.has_set_options = false;
  base::set_socket_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, m.unsent_limit);
  if (!m.had_nodelay) base::set_socket_option(fd, IPPROTO_TCP, TCP_NODELAY, 0);
  if (m.had_cork) base::set_socket_option(fd, IPPROTO_TCP, TCP_CORK, 1);
}

void send_fpdus_for_good(Connection& c, int fd) {
  Memory& m = c.r.memory;
  m.sending = Way::kWireAgain;
  give_options_back(c, fd);
  m.state.store(left_state(c), std::memory_order_release);
  drop_descriptor(c);
}

int send_on_wire_again(Connection& c, int fd) {
  if (c.is_sending_beyond_reach()) return ECONNRESET;
  if (c.r.memory.sending == Way::kMemory) leave_as_writer(c, fd);
  give_options_back(c, fd);
  return 0;
}

// One that is at work finds its lane closed and does this itself: also a call of this thread's that
// a signal handler has interrupted, for it may have counted octets that it has not sent.
static void leave_where_idle(Connection& c, int fd, bool is_sender) {
  const Memory& m = c.r.memory;
  if (m.sending == Way::kWireAgain || c.is_sending_beyond_reach()) return;
  Hold hold(c, c.tx.lease);
  const auto outcome = hold.attempt_over_the_dead();
  const bool is_mine =
      outcome == base::Lease::Outcome::kAcquired ||
      (outcome == base::Lease::Outcome::kHeldByMe && (is_sender || c.tx.is_asleep)) ||
      (outcome == base::Lease::Outcome::kInherited && hold.inherit(fd) == 0);
  if (!is_mine || m.sending == Way::kWireAgain) return;
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  segment != nullptr && segment->has_moved() ? leave_as_writer(c, fd) : send_fpdus_for_good(c, fd);
}

bool close_lanes(Connection& c, int fd, bool is_sender) {
  Memory& m = c.r.memory;
  auto state = m.state.load();
  while (state == MemoryState::kInvited || state == MemoryState::kUnasked)
    if (m.state.compare_exchange_weak(state, left_state(c))) return false;
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || (state != MemoryState::kJoined && state != MemoryState::kOffered)) {
    const bool is_half_done = m.sending == Way::kMemory || m.has_set_options;
    if (is_half_done && is_sender) leave_where_idle(c, fd, true);
    return is_half_done ||
           (segment != nullptr && segment->has_moved() && m.receiving != Way::kWireAgain);
  }
  m.has_left = true;
  // Who leaves before the stream has moved goes on sending FPDUs for good.
  if (!segment->stay_on_wire()) {
    close_both_lanes(*segment);
    wake_peers_writer(c);
  }
  leave_where_idle(c, fd, is_sender);
  return true;
}

void leave_memory(Connection& c, int fd) {
  const base::KeepErrno keep;
  if (!close_lanes(c, fd)) return;
  await_writer(c);
  // It may have come to its end without another look at the lane.
  leave_where_idle(c, fd, false);
  Hold hold(c, c.rx.lease);
  const Time end = base::now() + kAtLeave;
  for (;;) {
    const int e = hold.take(fd, Hold::kReceive, MSG_DONTWAIT);
    if (e == 0) break;
    if (e != EAGAIN || has_left_a_sleeper(c) || base::now() > end) return;
    sched_yield();
  }
  empty_lane(c, fd);
  c.r.memory.state.store(left_state(c), std::memory_order_release);
}

// One that sleeps for want of room, or is at work, finds its lane closed and leaves. It may end
// with this program.
static void await_writer(Connection& c) {
  const Memory& m = c.r.memory;
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || !segment->has_moved()) return;
  std::atomic<uint32_t>& futex = segment->lane_from(m.end).bell.room_wanted;
  const Time end = base::now() + kAtLeave;
  while (c.tx.lease.is_held() && !c.tx.lease.is_mine() &&
         (m.sending == Way::kMemory || !c.tx.is_asleep) && base::now() <= end) {
    base::kernel_call(SYS_futex, &futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    sched_yield();
  }
}

// The lane is closed, and the thread that holds the direction sleeps in front of it. True: there is
// nothing that a program in which this thread is dead would miss, and it will know where FPDUs go
// on.
static bool has_left_a_sleeper(Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || !segment->has_moved()) return true;
  Memory& m = c.r.memory;
  const shm::Lane& in = segment->lane_from(other(m.end));
  const uint64_t tail = in.writer.tail.load(std::memory_order_seq_cst);
  if (!c.rx.is_asleep || (tail & ~shm::kClosedBit) != in.reader.head.load()) return false;
  const uint64_t octets = in.writer.octets.load(std::memory_order_seq_cst);
  if (in.writer.settled_octets.load(std::memory_order_acquire) != octets) return false;
  m.fpdu_beyond.store(in.writer.fpdus.load(std::memory_order_acquire));
  m.octets_beyond.store(octets + 1, std::memory_order_release);
  return true;
}

// What comes lies in memory that this process has not mapped, because a thread slept in recv when
// its program was executed. 0, or the errno value for the call: processes that have mapped it go
// on. REQUIRES: the receive lease.
int go_on_beyond_memory(Connection& c) {
  Memory& m = c.r.memory;
  if (c.segment.load(std::memory_order_acquire) != nullptr || m.receiving == Way::kWireAgain)
    return 0;
  const uint64_t octets = m.octets_beyond.load(std::memory_order_acquire);
  if (octets == 0) return m.receiving == Way::kMemory ? ECONNRESET : 0;
  c.inbox.beyond_fpdu = m.fpdu_beyond.load();
  c.inbox.beyond_octets = static_cast<uint32_t>(octets - 1 - m.rx.octets);
  m.receiving = Way::kWireAgain;
  m.state.store(left_state(c), std::memory_order_release);
  return 0;
}

// REQUIRES: the receive lease, and that leave_memory() has closed the lane. 0, or an errno value.
int empty_lane(Connection& c, int fd) {
  Memory& m = c.r.memory;
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || !segment->has_moved() || m.receiving == Way::kWireAgain) return 0;
  if (is_at_memory(c)) begin_receiving_in_memory(c);
  InLane lane(c);
  // As much as there is now: a peer that publishes in spite of the close does so in vain.
  for (size_t left = lane->size(); left > 0;) {
    const auto bytes = lane->next(left);
    if (bytes.size == 0) return fail_lost(c, fd, "the peer wrote nonsense into the shared memory");
    if (!c.inbox.beyond.append(c.arena.blocks, {bytes.data, bytes.size}))
      return fail_lost(c, fd, "no memory for the bytes that lay in shared memory");
    if (is_watched()) tell_taken(c, bytes.size, [&] { return Bytes(bytes.data, bytes.size); });
    static_cast<void>(lane->take(bytes, base::current_cpu()));
    left -= bytes.size;
  }
  c.inbox.beyond_fpdu = lane->first_fpdu_in_memory();
  // One stays, for a poller to see while there are bytes.
  const bool is_behind_fpdus = m.receiving == Way::kWire;
  const uint64_t stays = !c.inbox.beyond.is_empty() || is_behind_fpdus ? 1 : 0;
  if (is_behind_fpdus) {
    // Taken later, perhaps by a program that has not mapped the memory: the number must be right.
    const Time end = base::now() + kAtLeave;
    while (!lane->are_octets_settled() && !is_ready_now(fd, POLLRDHUP)) {
      if (base::now() > end)
        return fail_lost(c, fd, "the peer was stopped while this end left shared memory");
      sched_yield();
    }
    c.inbox.beyond_octets = static_cast<uint32_t>(lane->octets_unread());
  } else {
    if (!take_counted_octets(c, fd, stays, kAtLeave) && !is_ready_now(fd, POLLRDHUP))
      return fail_lost(c, fd, "the peer was stopped while this end left shared memory");
    c.inbox.beyond_octets = static_cast<uint32_t>(lane->octets_unread());
  }
  m.receiving = Way::kWireAgain;
  return 0;
}

// The octets in the place of what was in memory. They may be in the buffer, or still on their way,
// or too many for once: false, with errno. Behind an end none come.
bool take_octets_beyond(Connection& c, int fd) {
  c.inbox.drop_buffered_octets();
  uint32_t& octets = c.inbox.beyond_octets;
  for (uint64_t taken = 0; octets > 0;) {
    if (taken > kMostOctetsAtOnce) {
      errno = EAGAIN;
      return false;
    }
    const ssize_t n = discard_octets(fd, octets, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == EBADF)) return false;
    if (n < 0) keep_error(c, judge_error(c, errno));
    octets = n > 0 ? octets - static_cast<uint32_t>(n) : 0;
    taken += static_cast<uint64_t>(std::max<ssize_t>(n, 0));
  }
  return true;
}

}  // namespace ddpsock::engine
