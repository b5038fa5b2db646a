// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/memory_rx.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/lanes.h"
#include "stream/leaving.h"
#include "stream/looks.h"
#include "stream/memory_receiver.h"
#include "stream/memory_start.h"
#include "stream/patience.h"
#include "stream/rx.h"
#include "stream/sleep.h"
#include "stream/start.h"
#include "stream/turning.h"

namespace ddpsock::engine {

bool is_next_in_memory(Connection& c, int fd) {
  if (is_at_memory(c)) begin_receiving_in_memory(c);
  if (c.r.memory.receiving != Way::kMemory || c.is_beyond_reach()) return false;
  InLane lane(c);
  if (!lane->is_leaving() || !lane->is_empty()) return true;
  take_counted_octets(c, fd, 0, {});
  if (!lane->has_left()) return true;
  c.r.memory.receiving = Way::kWireAgain;
  return false;
}

size_t bytes_in_memory(Connection& c) {
  return c.segment.load(std::memory_order_acquire) != nullptr ? InLane(c)->size() : 0;
}

// Something may lie before the error that is to be told. REQUIRES: the receive lease.
bool has_bytes_left(Connection& c, int fd) {
  if (c.inbox.has_bytes()) return true;
  if (c.r.memory.receiving == Way::kMemory) return bytes_in_memory(c) > 0;
  return !c.is_state(StreamState::kFailed) && bytes_queued(fd) > 0;
}

size_t look_into_memory(Connection& c, IoCursor& cursor, bool is_truncating) {
  InLane lane(c);
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
bool rest_between_looks(Connection& c, int& fd) {
  const bool is_whole = sleep_in(c.rx.is_asleep, [] { return base::sys.poll(nullptr, 0, 1); }) == 0;
  fd = still(c, fd);
  return is_whole;
}

Io peek_in_memory(Connection& c, int fd, std::span<const iovec> to, int flags, PeekCall& looking) {
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
  const size_t room = IoCursor(to).left();
  const size_t wanted = may_wait ? std::min(wanted_by_look(c, room, flags), shm::kAsGoodAsFull) : 1;
  Patience& patience = looking.patience;
  InLane lane(c);
  for (uint64_t vain = 0;; ++vain) {
    if (lane->next(1).is_corrupt) return Io::fail(fail_lost(c, fd, kNonsense));
    if (lane->is_leaving() && !lane->is_empty()) return peek(c, fd, to, flags, looking);
    IoCursor cursor(to);
    const size_t seen = look_into_memory(c, cursor, (flags & MSG_TRUNC) != 0);
    if (seen >= wanted || (seen > 0 && is_ready_now(fd, POLLRDHUP))) return looking.found(seen);
    if (seen > 0) return looking.found(seen, PeekCall::Next::kRest);
    size_t none = 0;
    IoCursor nowhere({});
    MemoryReceiver receiver(c, fd, nowhere, flags, none);
    if (receiver.refresh()) continue;
    if (lane->has_left() && lane->is_empty()) {
      c.r.memory.receiving = Way::kWireAgain;
      return peek(c, fd, to, flags, looking);
    }
    if (vain > kMostBells && (!may_wait || patience.is_over())) return Io::fail(EAGAIN);
    const int waiting = may_wait ? 0 : MSG_DONTWAIT;
    if (const int e = await_again(c, fd, waiting, patience, false); e != 0) {
      if (e == EAGAIN && !lane->is_empty()) continue;
      return Io::fail(e);
    }
    uint8_t byte;
    const ssize_t n = ask_in(c.rx.is_asleep, waiting,
                             [&] { return base::sys.recv(fd, &byte, 1, MSG_PEEK | waiting); });
    const int error = n < 0 ? judge_error(c, errno) : 0;
    fd = still(c, fd);
    if (lane->size() > 0) {
      keep_error(c, error);  // the kernel says it once
      continue;
    }
    if (n <= 0) return error == 0 ? end_of_stream(c) : Io::fail(error);
    if (!lane->accounts_for_octet()) return Io::fail(fail_lost(c, fd, kNotCounted));
  }
}

bool is_ready_in_memory(Connection& c, int fd) {
  c.habit.on_poller();
  InLane lane(c);
  const size_t mark = std::min(static_cast<size_t>(c.rx.low_water), shm::kAsGoodAsFull);
  for (bool is_first = true;; is_first = false) {
    const size_t have = lane->size();
    if (have >= mark || lane->next(1).is_corrupt) return true;
    if (have > 0) return is_ready_now(fd, POLLRDHUP);
    size_t none = 0;
    IoCursor nowhere({});
    if (MemoryReceiver(c, fd, nowhere, MSG_DONTWAIT, none).refresh()) continue;
    uint8_t byte;
    const ssize_t n = base::sys.recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    const int error = n < 0 ? errno : 0;
    if (error != EAGAIN) keep_error(c, judge_error(c, error));
    if (lane->size() > 0) continue;
    if (n <= 0) return error != EAGAIN;
    if (lane->has_left()) return true;
    if (!lane->accounts_for_octet()) {
      c.rx.error = fail_lost(c, fd, kNotCounted);
      return true;
    }
    if (!is_first) return false;  // a bell that is late
  }
}

Glance glance(const Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  const Memory& m = c.r.memory;
  const Way way = m.receiving.load(std::memory_order_acquire);
  if (segment == nullptr || way == Way::kWireAgain) {
    const auto state = m.state.load(std::memory_order_relaxed);
    return {.may_be_in_memory =
                state == MemoryState::kJoined || state == MemoryState::kOffered ||
                (segment == nullptr && c.r.wants_memory &&
                 (state == MemoryState::kUnasked || state == MemoryState::kInvited))};
  }
  const shm::Lane& in = segment->lane_from(other(m.end));
  const uint64_t tail = in.writer.tail.load(std::memory_order_acquire);
  const uint64_t unread = (tail & ~shm::kClosedBit) - m.rx.head.load(std::memory_order_relaxed);
  const uint64_t mark = std::min(
      static_cast<size_t>(c.rx.low_water.load(std::memory_order_relaxed)), shm::kAsGoodAsFull);
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
      .ready_since = in.writer.unread_since.load(std::memory_order_relaxed),
      .peer_cpu = in.writer.cpu.load(std::memory_order_relaxed)};
}

bool want_order(Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr) return false;
  std::atomic<uint32_t>& wish = segment->lane_from(other(c.r.memory.end)).bell.wants_order;
  if (wish.load(std::memory_order_relaxed) == 0) wish.store(1, std::memory_order_relaxed);
  return true;
}

bool has_memory_room(const Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  const Memory& m = c.r.memory;
  if (segment == nullptr || m.sending.load(std::memory_order_relaxed) != Way::kMemory) return false;
  const shm::Lane& out = segment->lane_from(m.end);
  const uint64_t queued = out.writer.tail.load(std::memory_order_relaxed) -
                          out.reader.head.load(std::memory_order_relaxed);
  return queued <= shm::kRingSize / 2;
}

bool is_open_in_memory(const Connection& c) {
  const auto is_closed = [](const shm::Lane& lane) {
    return (lane.writer.tail.load(std::memory_order_relaxed) & shm::kClosedBit) != 0;
  };
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  if (segment == nullptr || c.is_turned() || c.rx.is_shut || c.tx.is_shut) return false;
  if (c.rx.error.load(std::memory_order_relaxed) != 0 ||
      c.tx.error.load(std::memory_order_relaxed) != 0)
    return false;
  const shm::End end = c.r.memory.end;
  return !is_closed(segment->lane_from(end)) && !is_closed(segment->lane_from(other(end)));
}

bool may_have_stale_bell(const Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  return segment != nullptr &&
         segment->lane_from(other(c.r.memory.end)).bell.armed.load(std::memory_order_relaxed) == 0;
}

// The peer's pollers look here, and ask the kernel only if there may be something to hear.
void note_end_in_memory(Connection& c) {
  shm::Segment* segment = c.segment.load(std::memory_order_acquire);
  // Where the peer has joined what was offered to it, this end may not have noticed.
  if (segment != nullptr && (c.is_joined() || c.r.memory.state == MemoryState::kOffered))
    segment->lane_from(c.r.memory.end).writer.has_ended.store(1, std::memory_order_release);
}

void settle(Connection& c, int fd) {
  const base::KeepErrno keep;
  Hold hold(c, c.rx.lease);
  if (const int e = hold.take(fd, Hold::kReceive, MSG_DONTWAIT); e != 0) return keep_error(c, e);
  // What comes first is the peer's start-up frame, and no octet.
  if (!c.rx.is_started) {
    if (has_error(fd)) return;  // for pollers to tell of
    if (const int e = start_receiving(c, fd, MSG_DONTWAIT); e != 0) return keep_error(c, e);
  }
  if (!is_next_in_memory(c, fd)) return;
  size_t none = 0;
  IoCursor nowhere({});
  MemoryReceiver(c, fd, nowhere, MSG_DONTWAIT, none).refresh();
}

}  // namespace ddpsock::engine
