// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The program's calls while the connection is on its way back to plain TCP: what was read before
// the peer's marker comes first, what comes twice is passed over, then the kernel serves.
#include "stream/turning.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <array>
#include <optional>

#include "base/keep_errno.h"
#include "base/process.h"
#include "base/sys.h"
#include "base/unfinished.h"
#include "stream/descriptor.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/looks.h"
#include "stream/patience.h"
#include "stream/raw.h"
#include "stream/rx.h"
#include "stream/sleep.h"
#include "stream/tx.h"

namespace ddpsock::engine {
namespace {

constexpr size_t kMostSlices = 64;

bool is_at_urgent_mark(int fd) {
  int is_at_mark = 0;
  return base::sys.ioctl(fd, SIOCATMARK, &is_at_mark) == 0 && is_at_mark != 0;
}

// A program that was woken by the marker and not by bytes would read past an urgent byte of which
// no poller has told it yet. The kernel will, but for who reads no more: there nothing waits.
bool is_at_unseen_urgent_byte(const Connection& c, int fd, int flags) {
  return !c.rx.is_shut && ((flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd)) &&
         is_at_urgent_mark(fd);
}

// All of it may be here by now, and the edge have come with the marker: the kernel gives one again
// to who sets what it has to wait for.
int refuse_before_urgent_byte(const Connection& c, int fd) {
  set_kernel_low_water(fd, 1);
  if (const int low_water = c.rx.low_water; low_water > 1) set_kernel_low_water(fd, low_water);
  return EAGAIN;
}

}  // namespace

Io send_turned(Connection& c, int number, std::span<const iovec> from, int flags) {
  Descriptor fd(c, number);
  if (c.is_state(StreamState::kFailed)) return broken_pipe(fd, flags);
  if (c.is_state(StreamState::kPlain)) return Io::fail(EPROTOTYPE);
  const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
  if (const int e = flush_before_send(c, fd, flags); e != 0) return Io::fail(e);
  std::optional<Time> deadline;
  while (!c.r.raw.is_tx_plain && !c.tx.is_shut) {
    int e = send_mark(c, fd, {});
    if (e == EAGAIN && may_wait) e = await_room(c, fd, deadline, false);
    if (e != 0) return Io::fail(e);
  }
  std::array<iovec, kMostSlices> parts;
  IoCursor cursor(from);
  size_t size = cursor.left();
  msghdr m{};
  m.msg_iov = parts.data();
  m.msg_iovlen = cursor.slice(parts, size);
  const ssize_t n = ask_in(c.tx.is_asleep, flags, [&] { return base::sys.sendmsg(fd, &m, flags); });
  if (n < 0) return Io::fail(errno);
  c.r.sent.bytes.add(static_cast<size_t>(n));
  return Io::ok(n);
}

// Before a read that sleeps: 0 where that may, by the kernel's own timeout; or this has waited,
// because the call has slept before or `has_part` of what it wants. `fd` is -1 afterwards if it is
// gone.
int await_again(Connection& c, int& fd, int flags, Patience& patience, bool has_part) {
  if ((flags & MSG_DONTWAIT) != 0) return 0;
  const std::optional<Time> until = patience.before_read(has_part);
  if (!until) return 0;
  const int e = sleep_until_ready(c.rx.is_asleep, fd, POLLIN, *until);
  fd = still(c, fd);
  return fd < 0 ? EBADF : e;
}

// What the peer has sent as FPDUs and, because we asked, again. False: not all of it has come, and
// `io` says what the call is to return. `fd` is -1 afterwards if the call slept and it is gone.
static bool pass_over_repeated(Connection& c, int& fd, int flags, Patience& patience, bool has_part,
                               Io& io) {
  uint32_t& skip = c.r.raw.skip;
  while (skip > 0) {
    if (const uint32_t n = std::min(skip, c.inbox.left); n > 0) {
      c.inbox.beg += n;
      c.inbox.left -= n;
      skip -= n;
      continue;
    }
    if (const int e = await_again(c, fd, flags, patience, has_part); e != 0) {
      io = Io::fail(e);
      return false;
    }
    // Who dies asleep has taken nothing.
    uint8_t waste[4096];
    ssize_t n = 1;
    if ((flags & MSG_DONTWAIT) == 0) {
      n = sleep_in(c.rx.is_asleep, [&] { return base::sys.recv(fd, waste, 1, MSG_PEEK); });
      fd = still(c, fd);
    }
    if (n > 0) n = base::sys.recv(fd, waste, std::min<size_t>(skip, sizeof waste), MSG_DONTWAIT);
    if (n <= 0) {
      io = n == 0 ? Io::ok(0) : Io::fail(errno);
      return false;
    }
    skip -= static_cast<uint32_t>(n);
  }
  return true;
}

bool pass_over_what_is_there(Connection& c, int fd, Io& io) {
  Patience none(fd);
  return pass_over_repeated(c, fd, MSG_DONTWAIT, none, false, io);
}

// The kernel's word from now on. A program may have set it since the way back began.
void give_back_low_water(const Connection& c, int fd) {
  if (const int low_water = c.rx.low_water; low_water > 1) set_kernel_low_water(fd, low_water);
}

// While a call sleeps for the rest of what the program wants at least, the kernel waits for that;
// for the program's own mark again afterwards, also where the call never returns.
class LoweredMark : private base::Unfinished {
 public:
  LoweredMark(Connection& c, int fd, size_t missing)
      : Unfinished(abandon), c_(c), fd_(fd), is_lowered_(missing > 0) {
    begin();
    if (is_lowered_) set_kernel_low_water(fd, static_cast<int>(missing));
  }
  LoweredMark(const LoweredMark&) = delete;
  LoweredMark& operator=(const LoweredMark&) = delete;
  ~LoweredMark() { give_back(); }

 private:
  static void abandon(base::Unfinished& mark) { static_cast<LoweredMark&>(mark).give_back(); }
  // In a child that a signal handler forked inside the call it is the parent's, who sleeps on.
  void give_back() {
    if (!is_lowered_ || copies_ != base::thread_copies()) return;
    const base::KeepErrno keep;
    // Who closes the number waits for who is awake, which a call that is left in its sleep is not.
    const bool was_asleep = c_.rx.is_asleep.take_over();
    if (still(c_, fd_) == fd_) give_back_low_water(c_, fd_);
    if (was_asleep) c_.rx.is_asleep = true;
  }

  Connection& c_;
  const int fd_;
  const bool is_lowered_;
  const uint32_t copies_ = base::thread_copies();
};

// The kernel had no more for a call that has `got` bytes, but `io`.
static Io end_turned(Connection& c, size_t got, Io io) {
  if (got == 0) return io.is_ok() ? end_of_stream(c) : io;
  if (!io.is_ok()) keep_error(c, io.error);
  return Io::ok(static_cast<ssize_t>(got));
}

Io recv_turned(Connection& c, int fd, IoCursor& to, int flags, size_t got, Patience& patience) {
  const bool is_truncating = (flags & MSG_TRUNC) != 0;
  got += deliver_ready(c, to, is_truncating);
  if (to.left() == 0) return Io::ok(static_cast<ssize_t>(got));
  const auto mark = static_cast<size_t>(std::max(c.rx.low_water.load(), 1));
  const auto has_enough = [&] { return got > 0 && got >= mark && (flags & MSG_WAITALL) == 0; };
  if (has_enough()) flags |= MSG_DONTWAIT;
  Io io{};
  if (!pass_over_repeated(c, fd, flags, patience, got > 0, io)) return end_turned(c, got, io);
  if (const size_t n = std::min<size_t>(to.left(), c.inbox.left); n > 0) {
    is_truncating ? to.skip(n) : to.put(c.inbox.front(c.arena.blocks).data(), n);
    got += n;
    c.r.received.bytes.add(n);
    c.inbox.beg += static_cast<uint32_t>(n);
    c.inbox.left -= static_cast<uint32_t>(n);
    if (has_enough()) flags |= MSG_DONTWAIT;
  }
  {
    Hold hold(c, c.tx.lease);
    // An error that was kept is the kernel's no more, so this has to tell it.
    const bool has_said_all = hold.try_take() && c.rx.error == 0 && c.tx.error == 0;
    if (has_said_all && become_plain(c, fd) && got == 0)
      return Io::fail(is_at_unseen_urgent_byte(c, fd, flags) ? refuse_before_urgent_byte(c, fd)
                                                             : EPROTOTYPE);
  }
  if (to.left() == 0) return Io::ok(static_cast<ssize_t>(got));
  // As the kernel's own, a call ends before the urgent byte.
  if (got > 0 && is_at_urgent_mark(fd)) return Io::ok(static_cast<ssize_t>(got));
  if (got == 0) give_back_low_water(c, fd);
  const bool is_below_mark = got > 0 && got < mark && (flags & MSG_DONTWAIT) == 0;
  const LoweredMark lowered(c, fd, is_below_mark ? mark - got : 0);
  if (const int e = await_again(c, fd, flags, patience, got > 0); e != 0)
    return got > 0 ? Io::ok(static_cast<ssize_t>(got)) : Io::fail(e);
  std::array<iovec, kMostSlices> parts;
  size_t size = to.left();
  msghdr m{};
  m.msg_iov = parts.data();
  m.msg_iovlen = IoCursor(to).slice(parts, size);
  const ssize_t n = ask_in(c.rx.is_asleep, flags, [&] { return base::sys.recvmsg(fd, &m, flags); });
  if (n <= 0) return end_turned(c, got, n < 0 ? Io::fail(errno) : Io::ok(0));
  c.r.received.bytes.add(static_cast<size_t>(n));
  return Io::ok(static_cast<ssize_t>(got) + n);
}

// With `seen` bytes the call is over, or goes on where nothing hinders what it wants from coming:
// no look goes past an urgent byte.
static Io look_on_turned(Connection& c, int fd, size_t seen, size_t room, int flags,
                         PeekCall& looking) {
  using Next = PeekCall::Next;
  const bool may_go_on = seen < wanted_by_look(c, room, flags) && (flags & MSG_DONTWAIT) == 0 &&
                         !is_nonblocking(fd) && !is_ready_now(fd, POLLRDHUP | POLLPRI) &&
                         !is_at_urgent_mark(fd) && !is_receiving_at_limit(fd);
  return looking.found(seen, may_go_on ? Next::kRest : Next::kDone);
}

Io peek_turned(Connection& c, int fd, std::span<const iovec> to, const int asked,
               PeekCall& looking) {
  IoCursor cursor(to);
  const size_t room = cursor.left();
  int flags = asked & ~MSG_WAITALL;
  const bool is_truncating = (flags & MSG_TRUNC) != 0;
  size_t seen = show(c, c.inbox.ready, cursor, is_truncating);
  Io io{};
  if (seen > 0) flags |= MSG_DONTWAIT;
  Patience& patience = looking.patience;
  if (!pass_over_repeated(c, fd, flags, patience, false, io)) {
    if (seen > 0 && io.error == EAGAIN) return look_on_turned(c, fd, seen, room, asked, looking);
    return end_turned(c, seen, io);
  }
  if (const size_t n = std::min<size_t>(cursor.left(), c.inbox.left); n > 0) {
    is_truncating ? cursor.skip(n) : cursor.put(c.inbox.front(c.arena.blocks).data(), n);
    seen += n;
  }
  if (cursor.left() == 0) return Io::ok(static_cast<ssize_t>(seen));
  if (seen > 0) flags |= MSG_DONTWAIT;
  if (seen == 0) give_back_low_water(c, fd);
  if (const int e = await_again(c, fd, flags, patience, false); e != 0) return Io::fail(e);
  std::array<iovec, kMostSlices> parts;
  size_t size = cursor.left();
  msghdr m{};
  m.msg_iov = parts.data();
  m.msg_iovlen = cursor.slice(parts, size);
  const ssize_t n = ask_in(c.rx.is_asleep, flags, [&] { return base::sys.recvmsg(fd, &m, flags); });
  if (n <= 0 && !(n < 0 && errno == EAGAIN && seen > 0))
    return end_turned(c, seen, n < 0 ? Io::fail(errno) : Io::ok(0));
  seen += static_cast<size_t>(std::max<ssize_t>(n, 0));
  return look_on_turned(c, fd, seen, room, asked, looking);
}

Io readable_turned(Connection& c, int fd) {
  Io io{};
  const size_t beside = c.inbox.ready.size();
  if (!pass_over_what_is_there(c, fd, io)) return Io::ok(static_cast<ssize_t>(beside));
  return Io::ok(static_cast<ssize_t>(beside + c.inbox.left + bytes_queued(fd)));
}

bool is_recv_ready_turned(Connection& c, int fd) {
  Io io{};
  const auto mark = static_cast<size_t>(std::max(c.rx.low_water.load(), 1));
  const size_t beside = c.inbox.ready.size();
  if (beside >= mark) return true;
  if (!pass_over_what_is_there(c, fd, io)) return io.error != EAGAIN;
  const size_t here = beside + c.inbox.left;
  if (mark == 1) return here > 0 || is_ready_now(fd, POLLIN);
  // What cannot grow any more need not reach the mark.
  return here + bytes_queued(fd) >= mark || is_ready_now(fd, POLLRDHUP) ||
         is_receiving_at_limit(fd);
}

bool is_recv_ready_plain(const Connection& c, int fd) {
  give_back_low_water(c, fd);
  return is_ready_now(fd, POLLIN);
}

}  // namespace ddpsock::engine
