// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receiving where the stream shares its connection with a queue pair. Whoever has the receive lease
// drains the kernel: stream goes to the inbox, other FPDUs to the queue pair, so that neither is
// stuck behind the other. While that has bytes, the last byte that was looked at stays in the
// kernel (doc/design.md decision 3, I1): `held` counts those that are accounted for and not
// consumed yet.
#include "stream/one_sided_rx.h"

#include <errno.h>
#include <poll.h>

#include <optional>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "stream/failure.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/leaving.h"
#include "stream/looks.h"
#include "stream/one_sided.h"
#include "stream/patience.h"
#include "stream/rx.h"
#include "stream/sleep.h"
#include "stream/start.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

using Outcome = base::Lease::Outcome;

constexpr size_t kMostReady = 8 * Blocks::kBlockSize;
// A call that must not wait drains so often without a byte for it.
constexpr int kMostInVain = 2;

enum class Drain : uint8_t {
  kEmpty,
  kNoRoom,    // until the caller has taken what there is
  kNoMemory,  // and there is nothing to take
  kForeign,
  kOver,
  kLost,
  kFailed,
};
struct Drained {
  Drain end;
  int error;  // kLost, kFailed: an errno value
};

}  // namespace

static int free_window(Connection& c, int fd);
static int settle_held(Connection& c, int fd);
static Io recv_drained(Connection& c, int fd, IoCursor& to, int flags, size_t& got,
                       bool& is_foreign, Patience& patience, PeekCall* looking);
static Drained drain_and_take_in(Connection& c, int fd, std::optional<size_t>& most);

// What an ordinary receive call has left over. False: no memory, nothing changed.
static bool begin_draining(Connection& c, int fd) {
  if (c.rx.is_drained) return true;
  if (empty_lane(c, fd) != 0) return false;
  if (c.inbox.left > 0) {
    if (!c.inbox.ready.append(c.arena.blocks, c.inbox.front(c.arena.blocks))) return false;
    c.inbox.beg += c.inbox.left + c.inbox.skip;
    c.rx.held = c.inbox.has_kept_byte ? 1 : 0;
    c.inbox.left = c.inbox.skip = 0;
    c.inbox.has_kept_byte = false;
  }
  c.rx.is_drained = c.inbox.buffer(c.arena.blocks) != nullptr;
  return c.rx.is_drained;
}

// After the connection has failed nothing is delivered any more.
static void drop_ready(Connection& c) {
  c.inbox.ready.clear(c.arena.blocks);
  c.inbox.beyond.clear(c.arena.blocks);
  c.inbox.end = c.rx.held = 0;
}

// Deals with the FPDUs in the first `end` bytes of the buffer: `taken` of them when it returns,
// kEmpty if the rest is only the beginning of one.
static Drain take_fpdus(Connection& c, int fd, uint32_t end, uint32_t& taken, int& error) {
  const uint8_t* data = c.arena.blocks.data(c.inbox.block);
  for (;;) {
    if (c.is_beyond_next()) {
      reach_beyond(c);
      const uint32_t octets = std::min(c.inbox.beyond_octets, end - taken);
      c.inbox.beyond_octets -= octets;
      taken += octets;
    }
    const Bytes left(data + taken, end - taken);
    const Fpdu fpdu = c.reader().look(left);
    if (fpdu.is(Fpdu::Verdict::kNoHeader) || fpdu.is(Fpdu::Verdict::kPartial)) return Drain::kEmpty;
    if (!fpdu.is_of_stream) {
      const Bytes control = left.first(std::min<size_t>(left.size(), fpdu.size));
      const Offered offered = offer_fpdu(c, control);
      if (offered == Offered::kNoRoom) return Drain::kNoRoom;
      if (offered == Offered::kForeign) return Drain::kForeign;
      if (offered == Offered::kTaken && is_watched()) tell_received(c, control);
      error = offered == Offered::kTaken ? 0 : refuse_control(c, fd, control);
      if (error != 0) return Drain::kFailed;
      taken += fpdu.size;
      continue;
    }
    if (fpdu.is(Fpdu::Verdict::kBadCrc)) {
      if (is_watched()) tell_received(c, left.first(std::min<size_t>(left.size(), fpdu.size)));
      c.count_crc();
      error = fail_crc(c, fd);
      return Drain::kFailed;
    }
    BlockChain& ready = c.inbox.ready;
    if (ready.size() + fpdu.payload > kMostReady && !ready.is_empty()) return Drain::kNoRoom;
    if (!ready.append(c.arena.blocks, left.subspan(kChunkHeader, fpdu.payload)))
      return ready.is_empty() ? Drain::kNoMemory : Drain::kNoRoom;
    if (c.r.has_crc) c.count_crc();
    if (is_watched()) [[unlikely]]
      tell_received(c, left.first(fpdu.size));
    c.advance(fpdu);
    taken += fpdu.size;
  }
}

// The kernel has nothing more to look at: is there more to come? Takes no error from the socket,
// which is the program's to hear of.
static Drained judge_silence(Connection& c, int fd) {
  pollfd p{fd, POLLRDHUP, 0};
  base::sys.poll(&p, 1, 0);
  if (bytes_queued(fd) > c.rx.held) return {Drain::kEmpty, 0};  // since then; its edge is to come
  if ((p.revents & POLLERR) != 0) return {Drain::kLost, ECONNRESET};
  if ((p.revents & (POLLRDHUP | POLLHUP)) == 0) return {Drain::kEmpty, free_window(c, fd)};
  if (c.inbox.end > 0) {
    if (const int e = fail_cut(c, fd); e != 0) return {Drain::kFailed, e};
  }
  return {Drain::kOver, 0};
}

// Looks at all that the kernel has, as far as there is room for it; `most` bytes, which are those
// that lay there when it began. What comes meanwhile, perhaps without end, has an edge of its own.
static Drained drain(Connection& c, int fd, std::optional<size_t>& most) {
  if (c.is_state(StreamState::kFailed)) return {Drain::kOver, 0};
  if (c.is_beyond_reach()) {
    if (const int e = go_on_beyond_memory(c); e != 0) return {Drain::kFailed, e};
  }
  if (!begin_draining(c, fd)) return {Drain::kFailed, ENOBUFS};
  uint8_t* data = c.arena.blocks.data(c.inbox.block);
  for (;;) {
    if (c.is_beyond_next()) reach_beyond(c);
    const size_t queued = bytes_queued(fd);
    if (queued <= c.rx.held) return judge_silence(c, fd);
    if (!most) most = queued - c.rx.held;
    if (*most == 0) return {Drain::kEmpty, free_window(c, fd)};
    uint8_t held_bytes[1];
    const auto room = static_cast<uint32_t>(Blocks::kBlockSize - c.inbox.end);
    iovec into[] = {{held_bytes, c.rx.held}, {data + c.inbox.end, room}};
    msghdr m{};
    m.msg_iov = into;
    m.msg_iovlen = 2;
    const ssize_t n = base::sys.recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {Drain::kEmpty, 0};
    if (n < 0) return {Drain::kFailed, errno};
    if (n == 0) return judge_silence(c, fd);
    const uint32_t fresh = static_cast<uint32_t>(n) - c.rx.held;
    if (fresh == 0) return judge_silence(c, fd);
    const uint32_t before = c.inbox.end;
    uint32_t taken = 0;
    int error = 0;
    const Drain result = take_fpdus(c, fd, before + fresh, taken, error);
    if (result == Drain::kFailed) {
      drop_ready(c);
      return {Drain::kFailed, error};
    }
    // The beginning of an FPDU stays in the buffer, so that the kernel has room for the rest of it;
    // of one that cannot be taken now nothing more is read.
    const uint32_t end = result == Drain::kEmpty ? before + fresh : std::max(before, taken);
    c.rx.held += end - before;
    *most -= std::min<size_t>(*most, end - before);
    std::memmove(data, data + taken, end - taken);
    c.inbox.end = end - taken;
    if (const int e = settle_held(c, fd); e != 0) return {Drain::kFailed, e};
    if (result != Drain::kEmpty) return {result, 0};
    if (fresh < room) return {Drain::kEmpty, free_window(c, fd)};
  }
}

// The byte that stays keeps the kernel's whole buffer, which may be all that the socket may have:
// no answer would come past it. One that is owed comes as soon as the byte goes, and leaves
// another.
static int free_window(Connection& c, int fd) {
  if (c.rx.held == 0 || c.unanswered.load() <= 0 || !is_receive_memory_full(fd)) return 0;
  uint8_t unused[1];
  const ssize_t n = base::sys.recv(fd, unused, sizeof unused, MSG_DONTWAIT);
  if (n <= 0) return fail_lost(c, fd, "a byte known to be queued is gone");
  c.rx.held -= 1;
  return 0;
}

// Consumes what is accounted for, but for the byte that stands for what is ready.
static int settle_held(Connection& c, int fd) {
  if (c.is_state(StreamState::kFailed)) c.rx.held = 0;
  const uint32_t stays = c.inbox.ready.is_empty() ? 0 : 1;
  while (c.rx.held > stays) {
    uint8_t* unused = c.arena.blocks.data(c.inbox.block);  // MSG_TRUNC: nothing is copied
    const ssize_t n = base::sys.recv(fd, unused, c.rx.held - stays, MSG_TRUNC | MSG_DONTWAIT);
    if (n <= 0) return fail_lost(c, fd, "bytes known to be queued are gone");
    c.rx.held -= static_cast<uint32_t>(n);
  }
  return 0;
}

Io recv_one_sided(Connection& c, int fd, std::span<const iovec> to, int flags, PeekCall* looking) {
  IoCursor cursor(to);
  if (cursor.left() == 0) {
    const ssize_t n = base::sys.recv(fd, nullptr, 0, flags & MSG_DONTWAIT);
    return n < 0 ? Io::fail(errno) : Io::ok(0);
  }
  Patience own(fd, looking == nullptr && ((flags & MSG_WAITALL) != 0 || c.rx.low_water > 1));
  Patience& patience = looking != nullptr ? looking->patience : own;
  size_t got = 0;
  for (bool has_waited = looking != nullptr && looking->has_waited;;) {
    bool is_foreign = false;
    Io io{};
    {
      Hold hold(c, c.rx.lease);
      if (const int e = hold.take(fd, Hold::kReceive, flags); e != 0) {
        io = Io::fail(e);
      } else if (has_waited && (fd = still_named(c, fd)) < 0) {
        return Io::fail(EBADF);
      } else {
        io = recv_drained(c, fd, cursor, flags, got, is_foreign, patience, looking);
      }
    }
    if (got > 0) return Io::ok(static_cast<ssize_t>(got));
    if (!is_foreign) return io;
    if ((flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd)) return Io::fail(EAGAIN);
    // The process whose queue pair it is takes what is in front.
    if (patience.is_over()) return Io::fail(EAGAIN);
    if (base::sys.poll(nullptr, 0, 1) < 0) return Io::fail(errno);
    base::note_wake();
    has_waited = true;
  }
}

// Sleeps until the kernel has more than is accounted for, with its own rules for signals, timeouts
// and cancellation. 0, an errno, or kEndOfStream: nothing more comes.
int await_more(Connection& c, int& fd, int flags, Patience& patience, bool has_part) {
  const bool may_wait = (flags & MSG_DONTWAIT) == 0;
  std::optional<Time> until;
  if (may_wait) until = patience.before_read(has_part && c.rx.held == 0);
  if (until && base::now() >= *until) return EAGAIN;
  int error = 0;
  if (until && c.rx.held == 0) {
    error = sleep_until_ready(c.rx.is_asleep, fd, POLLIN, *until);
  } else {
    uint8_t look[2];
    ++base::effort.waits;
    const int how = MSG_PEEK | MSG_WAITALL | (flags & MSG_DONTWAIT);
    const ssize_t seen =
        ask_in(c.rx.is_asleep, how, [&] { return base::sys.recv(fd, look, 1 + c.rx.held, how); });
    if (seen < 0) error = errno;
    if (seen > 0 && seen <= static_cast<ssize_t>(c.rx.held)) error = kEndOfStream;
  }
  if (may_wait && (fd = still(c, fd)) < 0) return EBADF;
  return error;
}

// One receive call. REQUIRES: the receive lease.
static Io recv_drained(Connection& c, int fd, IoCursor& to, int flags, size_t& got,
                       bool& is_foreign, Patience& patience, PeekCall* looking) {
  if (!c.rx.is_started) {
    if (const int e = start_receiving(c, fd, flags); e != 0)
      return e == kEndOfStream ? Io::ok(0) : Io::fail(e);
  }
  const bool is_looking = looking != nullptr;
  const bool is_truncating = (flags & MSG_TRUNC) != 0;
  const size_t room = to.left() + got;
  const size_t wanted = wanted_by_look(c, room, flags);
  std::optional<size_t> most;
  size_t before = 0;
  for (int in_vain = 0;;) {
    const Drained drained = drain_and_take_in(c, fd, most);
    IoCursor look = to;
    const size_t n = is_looking ? show(c, c.inbox.ready, look, is_truncating)
                                : deliver_ready(c, to, is_truncating);
    got = is_looking ? n : got + n;
    if (const int e = settle_held(c, fd); e != 0) return Io::fail(e);
    if (drained.end == Drain::kNoRoom && n > 0 && !is_looking) continue;
    if (got > 0 && got >= wanted) return Io::ok(static_cast<ssize_t>(got));
    if (got == room) return Io::ok(static_cast<ssize_t>(got));
    if (got == 0) {
      int error = c.rx.error.exchange(0);
      if (error == 0) error = c.r.fault.exchange(0);
      if (error != 0) return Io::fail(error);
    }
    if (drained.end == Drain::kLost && got == 0) {
      // With the kernel's own word for it, which it says once.
      uint8_t byte;
      return base::sys.recv(fd, &byte, 1, MSG_DONTWAIT) < 0 ? Io::fail(errno) : Io::ok(0);
    }
    const bool is_over = drained.end == Drain::kOver || drained.end == Drain::kFailed ||
                         drained.end == Drain::kLost || c.is_state(StreamState::kFailed);
    if (is_over) return Io::ok(static_cast<ssize_t>(got));
    if (drained.end == Drain::kForeign) {
      is_foreign = got == 0;
      return Io::ok(static_cast<ssize_t>(got));
    }
    // A full inbox and a peek for more than it has: there is no more to see.
    if (drained.end == Drain::kNoRoom && is_looking && n > 0)
      return Io::ok(static_cast<ssize_t>(got));
    if (drained.end == Drain::kNoMemory)
      return got > 0 ? Io::ok(static_cast<ssize_t>(got)) : Io::fail(ENOBUFS);
    if (drained.end == Drain::kNoRoom) continue;  // there is now: what was in the way is done
    in_vain = got == before ? in_vain + 1 : 0;
    before = got;
    if (in_vain > kMostInVain && ((flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd)))
      return got > 0 ? Io::ok(static_cast<ssize_t>(got)) : Io::fail(EAGAIN);
    // The library's thread may take what wakes the kernel, now that it can.
    if (is_looking && got > 0 && (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd)) {
      using Next = PeekCall::Next;
      return looking->found(got, is_receiving_at_limit(fd) ? Next::kDone : Next::kRest);
    }
    const int e = await_more(c, fd, flags, patience, got > 0);
    if (e == kEndOfStream) return Io::ok(static_cast<ssize_t>(got));
    if (e != 0) return part_or_error(c, got, e);
    most.reset();
  }
}

// For a call of the program's, which must not be told of stream bytes before what precedes them is
// done.
static Drained drain_and_take_in(Connection& c, int fd, std::optional<size_t>& most) {
  Drained drained = drain(c, fd, most);
  if (OneSided* q = c.queue_pair(); q != nullptr && !q->arrived.is_done()) {
    q->take_in();
    // One that has not begun, or has ended, takes nothing: then it is somebody else's turn.
    const bool is_in_the_way = drained.end == Drain::kNoRoom && c.inbox.ready.is_empty();
    if (is_in_the_way && !q->arrived.is_done()) drained.end = Drain::kForeign;
  }
  if (drained.end == Drain::kFailed && c.rx.error == 0) c.rx.error = drained.error;
  if (c.is_state(StreamState::kFailed)) {
    drop_ready(c);
    drained.end = Drain::kOver;
  }
  return drained;
}

size_t readable_one_sided(Connection& c, int fd) {
  std::optional<size_t> most;
  drain_and_take_in(c, fd, most);
  return c.inbox.ready.size();
}

bool is_recv_ready_one_sided(Connection& c, int fd) {
  std::optional<size_t> most;
  const Drained drained = drain_and_take_in(c, fd, most);
  if (c.rx.error != 0 || c.r.fault.load() != 0) return true;
  if (drained.end != Drain::kEmpty && drained.end != Drain::kForeign) return true;
  if (c.inbox.ready.size() >= static_cast<size_t>(c.rx.low_water)) return true;
  return !c.inbox.ready.is_empty() && is_ready_now(fd, POLLRDHUP);
}

Result<size_t> receive_fpdus(Connection& c, int fd, std::span<const MutBytes> to) {
  const base::KeepErrno keep;
  OneSided* q = c.queue_pair();
  if (q == nullptr) return fail_errno(ECONNRESET);
  if (const size_t n = q->arrived.pop(to); n > 0) return n;
  if (c.is_state(StreamState::kFailed)) return fail_errno(ECONNRESET);
  Hold hold(c, c.rx.lease);
  c.rx.is_wanted.store(true);
  switch (hold.attempt()) {
    case Outcome::kAcquired:
      break;
    case Outcome::kInherited:
      if (const int e = hold.inherit(fd); e != 0) return fail_errno(e);
      break;
    default:
      // Who sleeps in the kernel deals with what wakes him.
      return fail_errno(is_ready_now(fd, POLLIN) ? EBUSY : EAGAIN);
  }
  c.rx.is_wanted.store(false);
  std::optional<size_t> most;
  const Drained drained = drain(c, fd, most);
  if (const size_t n = q->arrived.pop(to); n > 0) {
    if (drained.end == Drain::kFailed && c.rx.error == 0) c.rx.error = drained.error;
    return n;
  }
  switch (drained.end) {
    case Drain::kFailed:
      if (c.rx.error == 0) c.rx.error = drained.error;
      return fail_errno(drained.error);
    case Drain::kLost:
      return fail_errno(drained.error);
    case Drain::kOver:
      if (c.is_state(StreamState::kFailed)) return fail_errno(ECONNRESET);
      return 0;
    case Drain::kEmpty:
    case Drain::kNoRoom:
    case Drain::kNoMemory:
    case Drain::kForeign:
      break;
  }
  return fail_errno(EAGAIN);
}

}  // namespace ddpsock::engine
