// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/looks.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "base/process.h"
#include "base/sys.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/lanes.h"
#include "stream/leaving.h"
#include "stream/memory_rx.h"
#include "stream/memory_start.h"
#include "stream/one_sided_rx.h"
#include "stream/receiver.h"
#include "stream/rx.h"
#include "stream/scan.h"
#include "stream/start.h"
#include "stream/turning.h"

namespace ddpsock::engine {

static Io readable_on_wire(Connection& c, int fd, bool may_lag);

bool is_border(Connection& c, uint32_t msn) {
  if (c.inbox.has_beyond() && msn == c.inbox.beyond_fpdu) return true;
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  return segment != nullptr && c.r.memory.receiving == Way::kWire && segment->has_moved() &&
         msn == InLane(c)->first_fpdu_in_memory();
}

// Octets that stand for nothing would hide what lies behind them.
static void prepare_look(Connection& c, int fd) {
  if (c.is_beyond_next()) {
    reach_beyond(c);
    if (c.inbox.ready.is_empty()) take_octets_beyond(c, fd);
  }
  if (is_left_behind(c)) take_counted_octets(c, fd, 1, {});
}

// The peer has left the memory, and not all that lies there is read. REQUIRES: the receive lease.
bool is_left_behind(Connection& c) {
  if (c.r.memory.receiving != Way::kMemory || c.is_beyond_reach()) return false;
  const InLane lane(c);
  return lane->is_leaving() && lane->size() > 0;
}

uint64_t octets_before_wire(Connection& c) {
  return c.inbox.has_beyond() ? c.inbox.beyond_octets : InLane(c)->octets_unread();
}

bool is_wire_behind_border(Connection& c) {
  return c.inbox.has_beyond() || InLane(c)->is_leaving();
}

size_t look_behind_border(Connection& c, IoCursor* to, bool is_truncating) {
  const BlockChain& beyond = c.inbox.beyond;
  if (c.inbox.has_beyond())
    return to != nullptr ? show(c, beyond, *to, is_truncating) : beyond.size();
  return to != nullptr ? look_into_memory(c, *to, is_truncating) : bytes_in_memory(c);
}

size_t wanted_by_look(const Connection& c, size_t room, int flags) {
  if ((flags & MSG_WAITALL) != 0) return room;
  return std::min(room, static_cast<size_t>(std::max(c.rx.low_water.load(), 1)));
}

// May somebody else take what is there, or the number? Then the kernel would be asked for one byte
// more than will ever be there, or of another socket.
static bool may_be_disturbed(const Connection& c) {
  return !base::is_single_threaded() || c.arena.records.may_be_shared(&c.r);
}

int PeekCall::rest_ms(Duration look) {
  const int64_t ms = kRestsALook * look.ns / Duration::from_ms(1).ns;
  return static_cast<int>(std::clamp<int64_t>(ms, kShortestRestMs, kLongestRestMs));
}

// The kernel does the waiting where it can, with its own rules for signals and cancellation: a look
// at one byte more than there is, that is not satisfied with less. Where part lies in memory it
// calls the socket readable all the while, and nobody rings for more.
bool PeekCall::wait(Connection& c, int fd) {
  if (patience.is_over()) return false;
  const uint32_t copies = base::thread_copies();
  bool has_more = false;
  if (next == Next::kRest || patience.deadline() != kNever || may_be_disturbed(c)) {
    const Duration look = woke ? base::now() - *woke : Duration{};
    has_more = base::sys.poll(nullptr, 0, rest_ms(look)) == 0;
    woke = base::now();
    c.stream.forget_comparison();
  } else {
    constexpr int kHow = MSG_PEEK | MSG_WAITALL | MSG_TRUNC;
    const ssize_t n = base::sys.recv(fd, nullptr, queued + 1, kHow);
    has_more = n > static_cast<ssize_t>(queued);
    if (n < 0) keep_error(c, judge_error(c, errno));
  }
  base::note_wake();
  has_waited = true;
  // In a child that a signal handler forked meanwhile the call is a copy.
  return has_more && copies == base::thread_copies();
}

Io peek(Connection& c, int fd, std::span<const iovec> to, int flags, PeekCall& looking) {
  Scan scan(c, fd, IoCursor(to).left());
  const bool is_nonblocking_call = (flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd);
  const size_t wanted = is_nonblocking_call ? 1 : wanted_by_look(c, IoCursor(to).left(), flags);
  Patience& patience = looking.patience;
  for (bool has_dropped = false;;) {
    prepare_look(c, fd);
    IoCursor cursor(to);
    const Scan::Found sight = scan.look(&cursor, (flags & MSG_TRUNC) != 0);
    if (sight.payload >= wanted) return looking.found(sight.payload);
    if (sight.has_ended) return end_of_stream(c);
    if (sight.error == EPROTO) {
      // Let the receiver find out, say so to the peer and keep the reason.
      uint8_t byte;
      const iovec one{&byte, 1};
      IoCursor into({&one, 1});
      return ChunkReceiver(c, fd, into, MSG_DONTWAIT).run();
    }
    if (sight.error != 0) return Io::fail(sight.error);
    if (sight.payload > 0) {
      if (sight.has_more || is_ready_now(fd, POLLRDHUP) || is_receiving_at_limit(fd))
        return looking.found(sight.payload);
      looking.queued = sight.queued;
      using Next = PeekCall::Next;
      // Nobody rings for what comes behind bytes in memory that are not read.
      return looking.found(sight.payload,
                           sight.has_reached_border ? Next::kRest : Next::kAwaitMore);
    }
    if (sight.has_empty) {
      // The kernel would not wait for more while those lie there.
      if (has_dropped && (is_nonblocking_call || patience.is_over())) return Io::fail(EAGAIN);
      const int e = scan.drop_empty();
      if (e != 0) return e == EPROTOTYPE ? peek_turned(c, fd, to, flags, looking) : Io::fail(e);
      has_dropped = true;
      continue;
    }
    if (sight.has_partial) {
      if (const int e = take_partial(c, fd); e != 0) return Io::fail(e);
    }
    if (is_nonblocking_call) return Io::fail(EAGAIN);
    const int e = scan.wait_for_any(patience.deadline());
    fd = still(c, fd);
    if (e != 0) return Io::fail(e);
  }
}

Io readable(Connection& c, int fd, bool may_lag) {
  const base::KeepErrno keep;
  Hold hold(c, c.rx.lease);
  if (const int e = hold.take(fd, Hold::kReceive, MSG_DONTWAIT); e != 0) {
    keep_error(c, e);  // that the last holder died is said once
    return Io::ok(0);
  }
  if (!c.rx.is_started) {
    if (bytes_queued(fd) == 0 && has_error(fd)) return Io::ok(0);  // for a call that is told
    const int e = start_receiving(c, fd, MSG_DONTWAIT);
    if (e == EPROTOTYPE) return Io::fail(e);
    if (e != 0) return Io::ok(0);
  }
  if (c.rx.is_drained) [[unlikely]]
    return Io::ok(static_cast<ssize_t>(readable_one_sided(c, fd)));
  if (c.is_turned()) [[unlikely]] {
    if (c.is_state(StreamState::kPlain)) return Io::fail(EPROTOTYPE);
    if (c.r.raw.is_rx_plain) return readable_turned(c, fd);
  }
  if (c.is_beyond_reach() && go_on_beyond_memory(c) != 0) return Io::ok(0);
  if (is_next_in_memory(c, fd) && !is_left_behind(c))
    return Io::ok(static_cast<ssize_t>(bytes_in_memory(c)));
  prepare_look(c, fd);
  return readable_on_wire(c, fd, may_lag);
}

// A look copies all that lies there, so it is only for what has come since the last one; and of
// much that keeps coming while it is read in small pieces, only where the last count is down to a
// quarter. What such an answer leaves out comes with an edge, for a program that waits for that.
static bool is_count_good(Connection& c, int fd, bool may_lag) {
  ReceiveCount& count = c.rx.count;
  // What is in memory by now comes behind what lies on the wire. An offer in vain stays mapped.
  const shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (!count.is_known() || (segment != nullptr && segment->has_moved())) return false;
  const size_t queued = bytes_queued(fd);
  const bool is_behind_recv = may_lag && std::exchange(count.may_lag, false);
  if (queued == count.queue) return true;
  if (!is_behind_recv || queued <= Blocks::kBlockSize || count.payload < queued / 4) return false;
  set_kernel_low_water(fd, 1);
  return true;
}

static Io readable_on_wire(Connection& c, int fd, bool may_lag) {
  if (is_count_good(c, fd, may_lag)) return Io::ok(c.rx.count.payload);
  const uint32_t buffered = c.inbox.buffered();
  for (size_t room = 0;;) {
    Scan scan(c, fd, room);
    const Scan::Found sight = scan.look(nullptr);
    if (room == 0 && sight.queued + buffered >= Blocks::kBlockSize) {
      room = bytes_queued(fd) + buffered;
      continue;
    }
    if (sight.payload == 0 && sight.has_control && scan.drop_empty() == EPROTOTYPE)
      return readable_turned(c, fd);
    keep_error(c, sight.error);
    const bool is_plain_sight = sight.error == 0 && !sight.has_empty && !sight.has_message &&
                                !sight.has_reached_border && !c.inbox.has_beyond() &&
                                !is_left_behind(c);
    const auto seen = static_cast<uint32_t>(sight.queued);
    c.rx.count = {.queue = is_plain_sight ? seen : ReceiveCount::kUnknown,
                  .payload = static_cast<uint32_t>(sight.payload)};
    // A program that is told of nothing waits for an edge. Part of an FPDU must not be left where
    // it may keep the kernel from taking the rest.
    if (sight.payload == 0 && sight.has_partial && !sight.has_empty) take_partial(c, fd);
    return Io::ok(static_cast<ssize_t>(sight.payload));
  }
}

bool is_recv_ready(Connection& c, int fd) {
  const base::KeepErrno keep;
  Hold hold(c, c.rx.lease);
  if (const int e = hold.take(fd, Hold::kReceive, MSG_DONTWAIT); e != 0) {
    keep_error(c, e);
    return e == ECONNRESET;
  }
  if (c.rx.error != 0 || c.is_state(StreamState::kFailed)) return true;
  if (!c.rx.is_started) {
    if (has_error(fd)) return true;
    const int e = start_receiving(c, fd, MSG_DONTWAIT);
    if (e == EPROTOTYPE) return is_ready_now(fd, POLLIN);
    if (e != 0) return e != EAGAIN;
  }
  if (c.rx.is_drained) [[unlikely]]
    return is_recv_ready_one_sided(c, fd);
  if (c.is_turned()) [[unlikely]] {
    if (c.is_state(StreamState::kPlain)) return is_recv_ready_plain(c, fd);
    if (c.r.raw.is_rx_plain) return is_recv_ready_turned(c, fd);
  }
  if (c.is_beyond_reach() && go_on_beyond_memory(c) != 0) return true;
  if (is_next_in_memory(c, fd) && !is_left_behind(c)) return is_ready_in_memory(c, fd);
  prepare_look(c, fd);
  const auto wanted = static_cast<size_t>(c.rx.low_water);
  Scan scan(c, fd, wanted);
  Scan::Found sight = scan.look_for(wanted);
  if (sight.payload == 0 && sight.has_empty) {
    if (const int e = scan.drop_empty(); e != 0) {
      if (e == EPROTOTYPE) return is_recv_ready_turned(c, fd);
      c.rx.error = e;
      return true;
    }
    if (is_at_memory(c)) {
      begin_receiving_in_memory(c);
      return is_ready_in_memory(c, fd);
    }
    sight = scan.look_for(wanted);
  }
  if (sight.payload < wanted && sight.has_more) {
    // Small chunks are more than half overhead.
    Scan whole(c, fd, std::max(wanted, bytes_queued(fd)));
    sight = whole.look_for(wanted);
  }
  keep_error(c, sight.error);
  if (sight.has_ended || sight.error != 0) return true;
  if (sight.payload >= wanted) return true;
  // What cannot grow any more need not reach the mark.
  if (sight.payload > 0 &&
      (sight.has_more || is_ready_now(fd, POLLRDHUP) || is_receiving_at_limit(fd)))
    return true;
  if (sight.payload == 0 && sight.has_partial && !sight.has_empty) take_partial(c, fd);
  return false;
}

}  // namespace ddpsock::engine
