// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sending as FPDUs: which way a call goes, the rest of an FPDU that the kernel cut, the wait for
// room. sender.cpp is one call.
#include "stream/tx.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <climits>
#include <utility>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "stream/descriptor.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/memory_start.h"
#include "stream/memory_tx.h"
#include "stream/one_sided.h"
#include "stream/sender.h"
#include "stream/sleep.h"
#include "stream/start.h"
#include "stream/turning.h"

namespace ddpsock::engine {

namespace {

// The kernel has room and cuts all the same where the program limits what is unsent
// (TCP_NOTSENT_LOWAT). Afterwards the next writer, or poller, is to be told of room as before.
template <typename Send>
ssize_t beyond_unsent_limit(Connection& c, int fd, Send send) {
  int limit = 0;
  socklen_t size = sizeof limit;
  base::sys.getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, &size);
  constexpr int kNone = INT_MAX;
  base::sys.setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kNone, sizeof kNone);
  const ssize_t n = send();
  const int error = errno;
  base::sys.setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof limit);
  is_ready_now(fd, POLLOUT);
  c.tx.is_unsent_limited |= n > 0;
  errno = error;
  return n;
}

}  // namespace

// A reset that a call met behind bytes that count is for the next one: the kernel says it once.
void keep_send_error(Connection& c, int error) {
  if (is_told_once(error)) c.tx.error = error;
}

int tell_send_error(Connection& c, int fd, int flags) {
  const int e = c.tx.error == 0 ? 0 : c.tx.error.exchange(0);
  return e == EPIPE ? broken_pipe(fd, flags).error : e;
}

void keep_behind_part(Connection& c, int error) {
  keep_send_error(c, error);
  if (error == EPIPE && !c.tx.is_shut) c.tx.error = EPIPE;
}

Io sent_or_error(Connection& c, size_t sent, int error) {
  if (sent == 0 && error != 0) return Io::fail(error);
  keep_behind_part(c, error);
  return Io::ok(static_cast<ssize_t>(sent));
}

// Not in a blocking send: that would begin an FPDU in the room that is left and sleep in the middle
// of it, where a signal or a timeout cuts it.
int await_room(Connection& c, Descriptor& fd, std::optional<Time>& deadline, bool has_sent) {
  if (!deadline) deadline = deadline_of(fd, SO_SNDTIMEO);
  // Nothing is begun: who dies here, or jumps away, leaves all as it should be.
  const int e = sleep_until_ready(c.tx.is_asleep, fd, POLLOUT, *deadline);
  if (fd.is_copy()) [[unlikely]]
    return EINTR;
  fd.note_sleep();
  if (fd < 0) return EBADF;
  // poll() is never restarted; TCP's send is, if nothing was sent and it has no timeout.
  if (e != EINTR || has_sent || *deadline != kNever || !do_handlers_restart()) return e;
  return fd.can_restart() ? 0 : EBADF;
}

int keep_tail(Connection& c, int fd, IoCursor bytes, size_t size) {
  c.tx.tail_block = c.arena.blocks.allocate();
  if (c.tx.tail_block == Blocks::kNoBlock)
    return fail_lost(c, fd, "no memory for the rest of an FPDU");
  bytes.get(c.arena.blocks.data(c.tx.tail_block), size);
  c.tx.tail_beg = 0;
  c.tx.tail_end = static_cast<uint32_t>(size);
  return 0;
}

// A peer must not see half an FPDU if the program ends.
int flush_tail(Connection& c, int fd, bool may_wait) {
  int error = 0;
  constexpr Duration kTailPatience = Duration::from_ms(2000);
  const Time deadline = base::now() + kTailPatience;
  const uint8_t* data = c.arena.blocks.data(c.tx.tail_block);
  const auto send_rest = [&] {
    return without_cancellation([&] {
      return base::sys.send(fd, data + c.tx.tail_beg, c.tx.tail_end - c.tx.tail_beg,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  };
  while (c.tx.tail_beg < c.tx.tail_end) {
    ssize_t n = send_rest();
    if (n < 0 && errno == EAGAIN) n = beyond_unsent_limit(c, fd, send_rest);
    if (n > 0) {
      c.tx.tail_beg += static_cast<uint32_t>(n);
      continue;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      error = errno;
      break;
    }
    if (!may_wait) return EAGAIN;
    const int waited = wait_ready(fd, POLLOUT, deadline);
    if (!is_my_cookie(c, fd)) return EBADF;  // not by its name: in close() it has none any more
    if (waited == EAGAIN) return EAGAIN;
  }
  c.arena.blocks.free(std::exchange(c.tx.tail_block, Blocks::kNoBlock));
  return error;
}

int flush_before_send(Connection& c, int fd, int flags) {
  if (c.tx.tail_block == Blocks::kNoBlock) [[likely]]
    return 0;
  const int e = flush_tail(c, fd, (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd));
  return e == EPIPE ? 0 : e;
}

// The kernel says it to one call of either direction, and so does this.
static int take_reset_heard_by_reader(Connection& c) {
  int e = c.rx.error.load(std::memory_order_relaxed);
  if (e == 0 || !is_told_once(e)) [[likely]]
    return 0;
  return c.rx.error.compare_exchange_strong(e, 0) ? e : 0;
}

static Io send_first(Connection& c, int fd, std::span<const iovec> from, int flags);
static Io send_started(Connection& c, int fd, std::span<const iovec> from, int flags);

Io send_now(Connection& c, int fd, std::span<const iovec> from, int flags) {
  base::cancellation_point();
  const base::KeepErrno keep;
  constexpr int kKnown = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR | MSG_CONFIRM;
  if ((flags & ~kKnown) != 0)
    return Io::fail(decide_before_writing(c, fd) != 0 ? EPROTOTYPE : EOPNOTSUPP);
  // Nothing to send: not even a start-up frame goes out, but the socket's errors are told.
  if (IoCursor(from).left() == 0) {
    if (c.is_state(StreamState::kPlain)) return Io::fail(EPROTOTYPE);
    return base::sys.send(fd, "", 0, flags) < 0 ? Io::fail(errno) : Io::ok(0);
  }
  if (!c.tx.is_started || !c.rx.is_started) [[unlikely]] {
    if (const int e = prepare_to_send(c, fd, flags); e != 0) return Io::fail(e);
  }
  if (c.r.is_one_sided.load(std::memory_order_relaxed)) [[unlikely]]
    return send_one_sided(c, fd, from, flags);
  Hold hold(c, c.tx.lease);
  if (const int e = hold.take(fd, Hold::kSend, flags); e != 0) return Io::fail(e);
  if (const int e = tell_send_error(c, fd, flags); e != 0) [[unlikely]]
    return Io::fail(e);
  if (const int e = take_reset_heard_by_reader(c); e != 0) [[unlikely]]
    return Io::fail(e);
  if (c.is_turned()) [[unlikely]]
    return send_turned(c, fd, from, flags);
  if (!c.tx.is_started) {
    if (IoCursor(from).left() <= Sender::kMostWithFrame) return send_first(c, fd, from, flags);
    if (const int e = start_sending(c, fd, flags); e != 0) return Io::fail(e);
  }
  return send_started(c, fd, from, flags);
}

// The start-up frame and the first chunk in one, unless the chunk may go by memory.
static Io send_first(Connection& c, int fd, std::span<const iovec> from, int flags) {
  if (c.segment.load(std::memory_order_relaxed) == nullptr) {
    const OwnFrame frame(c, StartFrame::kUsual);
    if (c.segment.load(std::memory_order_relaxed) == nullptr) {
      if (c.r.remote.family == 0) c.r.note_addresses(fd);
      return Sender(c, fd, from, flags).begin_with(frame.bytes()).run();
    }
  }
  if (const int e = start_sending(c, fd, flags); e != 0) return Io::fail(e);
  return send_started(c, fd, from, flags);
}

// REQUIRES: the send lease, and that the start-up frame was sent.
static Io send_started(Connection& c, int fd, std::span<const iovec> from, int flags) {
  if (c.r.offers_later && c.tx.tail_block == Blocks::kNoBlock) [[unlikely]] {
    if (const int e = offer_memory_later(c, fd); e != 0) return Io::fail(e);
  }
  if (const int e = flush_before_send(c, fd, flags); e != 0) return Io::fail(e);
  const Way way = c.r.memory.sending.load(std::memory_order_relaxed);
  if (way == Way::kMemory) {
    if (c.is_sending_beyond_reach()) return Io::fail(ECONNRESET);
    return send_in_memory(c, fd, from, flags);
  }
  if (way == Way::kWire && c.segment.load(std::memory_order_relaxed) != nullptr)
    return send_before_memory(c, fd, from, flags);
  return Sender(c, fd, from, flags).run();
}

// An octet that nobody counted must not slip out before the shutdown.
Io broken_pipe(int fd, int flags) {
  base::sys.shutdown(fd, SHUT_WR);
  const ssize_t n = base::sys.send(fd, "", 1, flags);
  return Io::fail(n < 0 ? errno : EPIPE);
}

}  // namespace ddpsock::engine
