// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/rx.h"

#include <errno.h>

#include <utility>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "base/sys.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/lanes.h"
#include "stream/leaving.h"
#include "stream/looks.h"
#include "stream/memory_receiver.h"
#include "stream/memory_rx.h"
#include "stream/memory_start.h"
#include "stream/one_sided_rx.h"
#include "stream/patience.h"
#include "stream/receiver.h"
#include "stream/start.h"
#include "stream/turning.h"
#include "stream/watching.h"

namespace ddpsock::engine {

Io end_of_stream(Connection& c) {
  int error = c.rx.error.exchange(0);
  // Behind the peer's end it is none of a reader's.
  if (error == 0 && c.tx.error != EPIPE) error = c.tx.error.exchange(0);
  if (error == 0 && !c.rx.is_shut && is_watched())
    tell_event(c, Observer::Event::kReceivedEnd, nullptr);
  return error != 0 ? Io::fail(error) : Io::ok(0);
}

// As the kernel would have it: what is wrong with an FPDU is for a call that receives.
static bool is_the_sockets(int error) {
  return is_told_once(error) || error == EPIPE;
}

int take_kept_error(Connection& c) {
  for (std::atomic<int>* kept : {&c.rx.error, &c.tx.error}) {
    int e = kept->load();
    if (is_the_sockets(e) && kept->compare_exchange_strong(e, 0)) return e;
  }
  return 0;
}

bool has_kept_error(const Connection& c) {
  return is_the_sockets(c.rx.error) || is_the_sockets(c.tx.error);
}

Io part_or_error(Connection& c, size_t got, int error) {
  if (got == 0) return Io::fail(error);
  keep_error(c, error);
  return Io::ok(static_cast<ssize_t>(got));
}

// One call may find FPDUs, then what lies in memory, or what a relative left of that, then FPDUs.
static Io recv_stages(Connection& c, int fd, IoCursor& cursor, int flags, bool is_all_here) {
  size_t got = 0;
  for (;;) {
    if (c.r.memory.receiving.load(std::memory_order_relaxed) == Way::kMemory) {
      if (c.is_beyond_reach()) [[unlikely]] {
        if (const int e = go_on_beyond_memory(c); e != 0) return Io::fail(e);
        continue;
      }
      MemoryReceiver receiver(c, fd, cursor, flags, got);
      const Io io = receiver.run();
      if (!receiver.has_left() || !io.is_ok()) return io;
      fd = still(c, fd);
    } else if (c.is_beyond_next() || !c.inbox.ready.is_empty()) [[unlikely]] {
      if (c.is_beyond_next()) reach_beyond(c);
      got += deliver_ready(c, cursor, (flags & MSG_TRUNC) != 0);
      if (cursor.left() == 0) return Io::ok(static_cast<ssize_t>(got));
      const bool may_wait = (flags & MSG_DONTWAIT) == 0 && (got == 0 || (flags & MSG_WAITALL) != 0);
      Patience patience(fd);
      while (c.is_beyond_next() && !take_octets_beyond(c, fd)) {
        int e = errno;
        if (may_wait && !is_nonblocking(fd)) e = await_more(c, fd, flags, patience, got > 0);
        if (e != 0) return part_or_error(c, got, e);
      }
    } else {
      ChunkReceiver receiver(c, fd, cursor, flags, got);
      if (std::exchange(is_all_here, false)) receiver.note_all_is_here();
      const Io io = receiver.run();
      if (!receiver.is_at_border()) return io;
      fd = still(c, fd);
      got = static_cast<size_t>(std::max<ssize_t>(io.count, 0));
      if (is_at_memory(c)) begin_receiving_in_memory(c);
    }
  }
}

void reach_beyond(Connection& c) {
  c.r.received.bytes.add(c.inbox.beyond.size());
  c.inbox.reach_beyond(c.arena.blocks);
}

size_t show(Connection& c, const BlockChain& bytes, IoCursor& to, bool is_truncating) {
  size_t seen = 0;
  while (to.left() > 0 && seen < bytes.size()) {
    const Bytes part = bytes.at(c.arena.blocks, seen, to.left());
    is_truncating ? to.skip(part.size()) : to.put(part.data(), part.size());
    seen += part.size();
  }
  return seen;
}

size_t deliver_ready(Connection& c, IoCursor& to, bool is_truncating) {
  const size_t n = show(c, c.inbox.ready, to, is_truncating);
  if (!is_truncating) c.r.received.bytes_copied.add(n);
  c.inbox.ready.take(c.arena.blocks, n);
  c.rx.count.forget();
  // With a queue pair beside it the next bytes come this way too.
  if (c.inbox.ready.is_empty() && !c.rx.is_drained) c.inbox.ready.clear(c.arena.blocks);
  return n;
}

void note_fpdu_read(Connection& c) {
  if (c.segment.load(std::memory_order_relaxed) != nullptr) InLane(c)->note_fpdu(c.rx.msn);
}

static Io look_at(Connection& c, int fd, std::span<const iovec> to, int flags, PeekCall& looking) {
  if (c.is_beyond_reach()) [[unlikely]] {
    if (const int e = go_on_beyond_memory(c); e != 0) return Io::fail(e);
  }
  return is_next_in_memory(c, fd) ? peek_in_memory(c, fd, to, flags, looking)
                                  : peek(c, fd, to, flags, looking);
}

// Nothing to place, but the call still waits or refuses as TCP's does.
static Io recv_nothing(Connection& c, int fd, int flags) {
  uint8_t byte;
  const iovec one{&byte, 1};
  PeekCall looking(c, fd, 0);
  const Io io = look_at(c, fd, {&one, 1}, flags & MSG_DONTWAIT, looking);
  return io.is_ok() ? Io::ok(0) : io;
}

// `looking` is there with MSG_PEEK.
static Io recv_held(Connection& c, int fd, std::span<const iovec> to, int flags,
                    PeekCall* looking) {
  Hold hold(c, c.rx.lease);
  if (const int e = hold.take(fd, Hold::kReceive, flags); e != 0) return Io::fail(e);
  if (looking != nullptr && looking->has_waited && (fd = still_named(c, fd)) < 0)
    return Io::fail(EBADF);
  if (c.rx.is_drained || c.r.is_one_sided.load(std::memory_order_relaxed)) [[unlikely]] {
    hold.end();
    return recv_one_sided(c, fd, to, flags, looking);
  }
  if (c.rx.error != 0 && !has_bytes_left(c, fd)) return end_of_stream(c);
  if (c.is_turned()) [[unlikely]] {
    if (c.is_state(StreamState::kFailed)) return end_of_stream(c);
    if (c.is_state(StreamState::kPlain)) return Io::fail(EPROTOTYPE);
    if (c.r.raw.is_rx_plain) {
      IoCursor cursor(to);
      Patience patience(fd);
      return looking != nullptr ? peek_turned(c, fd, to, flags, *looking)
                                : recv_turned(c, fd, cursor, flags, 0, patience);
    }
  }
  bool has_chunk = false;
  if (!c.rx.is_started) {
    const size_t room = (flags & MSG_PEEK) == 0 ? IoCursor(to).left() : 0;
    if (const int e = start_receiving(c, fd, flags, room); e == EPROTOTYPE) {
      hold.end();
      return go_on_as_plain(c, fd, to, flags);
    } else if (e != 0) {
      return e == kEndOfStream ? end_of_stream(c) : Io::fail(e);
    }
    has_chunk = room > 0 && c.inbox.buffered() > 0;
    fd = still(c, fd);
  }
  if (c.r.memory.state == MemoryState::kInvited) {
    if (const int e = try_to_join(c, fd); e != 0) return Io::fail(e);
  }
  if (c.r.memory.state == MemoryState::kOffered) notice_joining_while_receiving(c, fd);
  IoCursor cursor(to);
  if (cursor.left() == 0) return recv_nothing(c, fd, flags);
  if (looking != nullptr) return look_at(c, fd, to, flags, *looking);
  const Io io = recv_stages(c, fd, cursor, flags, has_chunk);
  // Another process has begun with one-sided operations meanwhile, and what came is for it.
  if (io.error == EAGAIN && c.r.is_one_sided.load(std::memory_order_relaxed)) [[unlikely]] {
    hold.end();
    return recv_one_sided(c, fd, to, flags, looking);
  }
  return io;
}

static Io look_on(Connection& c, int fd, std::span<const iovec> to, int flags) {
  PeekCall looking(c, fd, flags);
  for (Io seen;;) {
    looking.next = PeekCall::Next::kDone;
    const Io io = recv_held(c, fd, to, flags, &looking);
    // Another has taken all meanwhile.
    if (seen.count > 0 && io.count <= 0 && io.error != EPROTOTYPE) {
      keep_error(c, io.error);
      return seen;
    }
    seen = io;
    if (looking.next == PeekCall::Next::kDone || !looking.wait(c, fd)) return seen;
  }
}

Io recv_now(Connection& c, int fd, std::span<const iovec> to, int flags) {
  base::cancellation_point();  // what lies in memory is taken without one
  const base::KeepErrno keep;
  constexpr int kKnown =
      MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_TRUNC | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;
  if ((flags & ~kKnown) != 0)
    return Io::fail(decide_before_writing(c, fd) != 0 ? EPROTOTYPE : EOPNOTSUPP);
  return (flags & MSG_PEEK) != 0 ? look_on(c, fd, to, flags) : recv_held(c, fd, to, flags, nullptr);
}

void keep_error(Connection& c, int error) {
  if (is_told_once(error)) c.rx.error = error;
}

}  // namespace ddpsock::engine
