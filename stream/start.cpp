// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up of a stream (RFC 5044 section 7.1, RFC 6581). Between proved peers each direction
// starts by itself: a side's start-up frame travels with its first FPDU and nobody waits. Towards
// anyone else, and with DDPSOCK_START=strict, FPDUs wait for the Reply. Leases are taken in the
// order receive, send.
#include "stream/start.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cassert>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "mpa/startup_frame.h"
#include "stream/descriptor.h"
#include "stream/failure.h"
#include "stream/hello.h"
#include "stream/hold.h"
#include "stream/identity.h"
#include "stream/io_cursor.h"
#include "stream/kernel_socket.h"
#include "stream/memory_rx.h"
#include "stream/memory_start.h"
#include "stream/patience.h"
#include "stream/sender.h"
#include "stream/sleep.h"
#include "stream/watching.h"

namespace ddpsock::engine {
namespace {

// How long the first bytes may stay a mere beginning of the MPA key before they are taken for plain
// data. A peer that means it sends its Request in one piece.
constexpr Duration kSniffPatience = Duration::from_ms(200);
// How long a thread that waits for the peer's frame sleeps at a time: beside a reader, which will
// read it, or alone, where it wakes by itself but for a reader that comes meanwhile.
constexpr Duration kBesideReader = Duration::from_ms(1), kAlone = Duration::from_ms(20);
// A peer that asks for less only slows itself down.
constexpr uint32_t kMinPayload = 256;

mpa::FrameKind kind_sent_by(Role role) {
  return role == Role::kInitiator ? mpa::FrameKind::kRequest : mpa::FrameKind::kReply;
}
mpa::FrameKind kind_expected_by(Role role) {
  return role == Role::kInitiator ? mpa::FrameKind::kReply : mpa::FrameKind::kRequest;
}

// Towards a stranger a chunk fits one TCP segment (RFC 5044 section 5).
uint32_t payload_per_segment(int fd) {
  const int saved = errno;
  int mss = 0;
  socklen_t size = sizeof mss;
  if (base::sys.getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &size) != 0) mss = 536;
  errno = saved;
  return mpa::mulpdu(static_cast<size_t>(std::max(mss, 0)), false) - DDP_UNTAGGED_HEADER_SIZE;
}

int nap(Duration time) {
  return base::sys.poll(nullptr, 0, static_cast<int>(time.ceil_ms())) < 0 ? errno : 0;
}

}  // namespace

static void answer(Connection& c, int fd);
static int receive_start_frame(Connection& c, int fd, int flags, size_t room);
static bool buffer_start_bytes(Connection& c, int fd, size_t n);
static int accept_start_frame(Connection& c, int fd, mpa::StartupView view);
static int reject(Connection& c, int fd, const char* why);
static void note_started(Connection& c);
static mpa::Sniff judge_first(Bytes seen);

// Before the send lease is taken: whatever has to come from the peer before we may speak.
int prepare_to_send(Connection& c, int& fd, int flags) {
  if (const int e = decide_before_writing(c, fd); e != 0) return e;
  if (c.is_awaited() && !c.rx.is_started && !c.is_state(StreamState::kFailed)) {
    if (c.r.role == Role::kInitiator) {
      if (const Io io = on_connected(c, fd, false); !io.is_ok()) return io.error;
    }
    const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
    const int e = await_start_frame(c, fd, may_wait, deadline_of(fd, SO_SNDTIMEO));
    return e == 0 && (fd = still(c, fd)) < 0 ? EBADF : e;
  }
  // Whoever wants to go without CRCs looks for the Reply that allows it, also if it never receives.
  if (!c.r.wants_crc && c.tx.is_started && !c.rx.is_started) {
    Hold hold(c, c.rx.lease);
    if (hold.try_take() && !c.rx.is_started) {
      // The kernel says it once.
      const int e = start_receiving(c, fd, MSG_DONTWAIT);
      if (e == ECONNRESET && !c.is_state(StreamState::kFailed)) return e;
    }
  }
  return 0;
}

// For calls that cannot wait for the peer's first bytes. A reader may sleep on them meanwhile, with
// the receive lease: nothing is taken here. 0, or EPROTOTYPE.
int decide_before_writing(Connection& c, int fd) {
  if (c.r.peer == Peer::kPlain) return decide(c, fd, Peer::kPlain);
  if (c.r.peer != Peer::kUnknown) return 0;
  return decide(c, fd, has_whole_request(fd) ? Peer::kRequired : Peer::kPlain);
}

bool has_whole_request(int fd) {
  const base::KeepErrno keep;
  uint8_t frame[MPA_MAX_STARTUP_SIZE];
  const ssize_t n = base::sys.recv(fd, frame, sizeof frame, MSG_PEEK | MSG_DONTWAIT);
  return n > 0 && judge_first({frame, static_cast<size_t>(n)}) == mpa::Sniff::kMpaRequest;
}

// Until the peer's frame has been read, by whichever thread: the lease is held for a look only, and
// a reader that sleeps with it reads the frame for us too.
int await_start_frame(Connection& c, int fd, bool may_wait, Time patience) {
  const Time deadline = base::now() + c.r.start_timeout;
  while (!c.rx.is_started) {
    Duration pause = kBesideReader;
    {
      Hold hold(c, c.rx.lease);
      const auto outcome = hold.attempt();
      if (outcome == base::Lease::Outcome::kHeldByMe) return EAGAIN;
      if (outcome == base::Lease::Outcome::kInherited) {
        if (const int e = hold.inherit(fd); e != 0) return e;
      }
      if (outcome != base::Lease::Outcome::kBusy) {
        if (c.rx.is_started) return 0;
        const int e = start_receiving(c, fd, MSG_DONTWAIT);
        if (e == kEndOfStream) return fail_lost(c, fd, "the peer closed during MPA start-up");
        if (e != EAGAIN) return e;
        pause = kAlone;
      }
    }
    if (!may_wait) return EAGAIN;
    const Time now = base::now();
    if (now >= deadline)
      return fail_refused(c, fd, ETIMEDOUT, "no MPA start-up frame from the peer in time");
    if (now >= patience) return EAGAIN;
    const int e = pause == kAlone
                      ? wait_ready(fd, POLLIN, std::min({deadline, patience, now + pause}))
                      : nap(pause);
    if ((fd = still(c, fd)) < 0) return EBADF;
    if (e == EINTR && does_restart(fd, SO_SNDTIMEO)) continue;
    if (e != 0 && e != EAGAIN) return e;
  }
  return 0;
}

int start_receiving(Connection& c, int fd, int flags, size_t room) {
  if (c.is_state(StreamState::kPlain)) return EPROTOTYPE;
  if (c.is_state(StreamState::kFailed)) return kEndOfStream;
  if (c.r.peer == Peer::kUnknown) {
    if (const int e = sniff(c, fd, flags); e != 0) return e;
    if ((fd = still(c, fd)) < 0) return EBADF;
  } else if (c.r.peer == Peer::kPlain) {  // by somebody who has not got further, or has died there
    return decide(c, fd, Peer::kPlain);
  }
  if (c.r.role == Role::kInitiator && c.is_awaited() && !c.tx.is_started) {
    if (const Io io = on_connected(c, fd, false); !io.is_ok()) return io.error;
  }
  if (const int e = receive_start_frame(c, fd, flags, room); e != 0) return e;
  c.rx.is_started = true;
  note_started(c);
  answer(c, fd);
  return c.is_state(StreamState::kFailed) ? ECONNRESET : 0;
}

// Our frame, at once, to a peer that says it cannot go on without, and the Reply also to any that
// may be waiting for it, whatever is known here of it. Whoever has the send lease sends the frame
// before anything else.
static void answer(Connection& c, int fd) {
  const bool is_asked = (c.r.peer_features & DDPSOCK_FEATURE_HURRY) != 0;
  const bool is_reply_due =
      c.r.role == Role::kResponder && (c.is_awaited() || !c.r.has_crc || c.rx.was_alone);
  if (c.tx.is_started || !(is_asked || is_reply_due)) return;
  // Nobody may be there to read it, and the kernel would reset the connection.
  if (!c.is_awaited() && is_ready_now(fd, POLLRDHUP)) return;
  Hold hold(c, c.tx.lease);
  if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) != 0 || c.tx.is_started) return;
  send_start_frame(c, fd, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// REQUIRES: the send lease. The frame goes out in one segment with the FPDU that follows at once.
int start_sending(Connection& c, int fd, int flags) {
  return send_start_frame(c, fd, (flags & (MSG_DONTWAIT | MSG_NOSIGNAL)) | MSG_MORE);
}

OwnFrame::OwnFrame(Connection& c, StartFrame kind) {
  std::array<uint8_t, DDPSOCK_HELLO_MAX_SIZE> hello;
  stream::Hello words{
      .features = DDPSOCK_FEATURE_STREAM | DDPSOCK_FEATURE_ONE_SIDED | DDPSOCK_FEATURE_RAW,
      .max_payload = kPreferredPayload};
  if (c.r.wants_memory) words.features |= DDPSOCK_FEATURE_JOINS | DDPSOCK_FEATURE_LATER;
  if (kind == StartFrame::kHurried) words.features |= DDPSOCK_FEATURE_HURRY;
  if (kind != StartFrame::kRejected) offer_memory(c, words);
  const size_t hello_size = stream::encode(hello, words).value_or(0);
  mpa::StartupFrame frame{.kind = kind_sent_by(c.r.role),
                          .wants_crc = c.r.wants_crc,
                          .is_rejected = kind == StartFrame::kRejected,
                          .private_data = Bytes(hello).first(hello_size)};
  // A responder answers in the Request's revision and form; one that has not seen it has a proved
  // peer, which speaks ours.
  bool is_enhanced = true;
  if (c.r.has_peer_revision) {
    frame.revision = c.r.peer_revision;
    is_enhanced = c.r.is_peer_enhanced;
  }
  // No Reads outstanding, no peer-to-peer start.
  if (is_enhanced) frame.enhanced = mpa::Enhanced{};
  const auto size = mpa::write_startup(frame, bytes_);
  assert(size.has_value());
  size_ = *size;
}

int send_start_frame(Connection& c, int fd, int flags, StartFrame kind) {
  const OwnFrame frame(c, kind);
  const Bytes bytes = frame.bytes();
  if (c.r.remote.family == 0) c.r.note_addresses(fd);
  const ssize_t n =
      without_cancellation([&] { return base::sys.send(fd, bytes.data(), bytes.size(), flags); });
  return n < 0 ? errno : note_frame_sent(c, fd, bytes.size(), static_cast<size_t>(n));
}

int note_frame_sent(Connection& c, int fd, size_t frame, size_t taken) {
  if (taken < frame) return fail_lost(c, fd, "the kernel had no room for the MPA start-up frame");
  c.tx.is_started = true;
  note_started(c);
  return 0;
}

// A look that may sleep, and changes nothing if the process is killed in it.
static ssize_t look_at_start(Connection& c, int& fd, MutBytes out, int flags) {
  const int look = (flags & MSG_DONTWAIT) | MSG_PEEK;
  const ssize_t n = ask_in(c.rx.is_asleep, flags,
                           [&] { return base::sys.recv(fd, out.data(), out.size(), look); });
  if ((flags & MSG_DONTWAIT) == 0) fd = still(c, fd);
  return n;
}

// Is all that lies behind the frame one chunk that the call takes whole? Then nothing must be left
// in the kernel for it (I1). What comes behind octets, or is some, is for others to judge.
static bool has_whole_chunk(const Connection& c, Bytes behind, size_t room) {
  if (c.segment.load(std::memory_order_acquire) != nullptr || c.inbox.has_beyond()) return false;
  const Fpdu fpdu = ChunkReader(c.rx.msn, c.rx.mo, false).look(behind);
  return fpdu.is(Fpdu::Verdict::kChunk) && fpdu.size == behind.size() && fpdu.payload > 0 &&
         fpdu.payload <= room;
}

// Reads exactly one frame, and the chunk that came with it if the call takes that. Bytes one by one
// do not make it wait any longer. What is not the beginning of one is left in the kernel untouched.
static int receive_start_frame(Connection& c, int fd, int flags, size_t room) {
  uint8_t frame[MPA_MAX_STARTUP_SIZE];
  Patience patience(fd);
  for (bool is_first = true;; is_first = false) {
    size_t have = 0;
    if (!is_first && (flags & MSG_DONTWAIT) == 0 && patience.is_over()) return EAGAIN;
    if (const Bytes before = c.inbox.unparsed(c.arena.blocks); !before.empty()) {
      have = before.size();
      std::memcpy(frame, before.data(), have);
    }
    const ssize_t n = look_at_start(c, fd, {frame + have, sizeof frame - have}, flags);
    if (fd < 0) return EBADF;
    if (n < 0) {
      const int e = errno;
      if (e == EAGAIN && have > 0 && base::now() - c.r.opened_at > c.r.start_timeout)
        return fail_refused(c, fd, ETIMEDOUT, "the peer's MPA start-up frame never ended");
      return e;
    }
    if (n == 0)
      return have == 0 || !has_peer_ended(fd)
                 ? kEndOfStream
                 : fail_lost(c, fd, "the peer closed inside its MPA start-up frame");
    const size_t seen = have + static_cast<size_t>(n);
    const auto view = mpa::StartupView::over({frame, seen}, kind_expected_by(c.r.role));
    if (view) {
      const Bytes behind = Bytes(frame, seen).subspan(view->size());
      const bool is_all = seen < sizeof frame;
      const size_t chunk = is_all && has_whole_chunk(c, behind, room) ? behind.size() : 0;
      uint8_t* const data = chunk > 0 ? c.inbox.buffer(c.arena.blocks) : nullptr;
      const size_t taken = view->size() + (data != nullptr ? chunk : 0);
      base::sys.recv(fd, frame + have, taken - have, MSG_DONTWAIT);
      c.rx.was_alone = behind.empty();
      const int e = accept_start_frame(c, fd, *view);
      if (e != 0 || data == nullptr) {
        c.inbox.free_buffer(c.arena.blocks);
      } else {
        std::memcpy(data, behind.data(), chunk);
        c.inbox.end = static_cast<uint32_t>(chunk);
      }
      return e;
    }
    if (view.error() == mpa::StartupError::kNotMpa) {
      c.r.note_failure(mpa::to_text(view.error()));
      return EPROTO;
    }
    if (view.error() != mpa::StartupError::kTruncated)
      return fail_refused(c, fd, EPROTO, mpa::to_text(view.error()));
    if (!buffer_start_bytes(c, fd, static_cast<size_t>(n)))
      return fail_lost(c, fd, "no memory for received bytes");
  }
}

// A frame that came in pieces does not leave the socket readable (I2).
static bool buffer_start_bytes(Connection& c, int fd, size_t n) {
  uint8_t* data = c.inbox.buffer(c.arena.blocks);
  if (data == nullptr) return false;
  base::sys.recv(fd, data + c.inbox.end, n, MSG_DONTWAIT);
  c.inbox.end += static_cast<uint32_t>(n);
  return true;
}

static int accept_start_frame(Connection& c, int fd, mpa::StartupView view) {
  c.r.peer_revision = std::min<uint8_t>(view.revision(), MPA_REVISION_ENHANCED);
  const auto frame = mpa::StartupFrame::from(view);
  if (!frame) return reject(c, fd, mpa::to_text(frame.error()));
  c.r.is_peer_enhanced = frame->enhanced.has_value();
  c.r.has_peer_revision = true;
  if (frame->is_rejected)
    return fail_refused(c, fd, ECONNREFUSED, "the peer rejected the connection (MPA Reply with R)");
  if (frame->needs_markers)
    return reject(c, fd, "the peer needs Markers, which streams do not carry");
  c.r.has_crc = c.r.wants_crc || frame->wants_crc;
  if (const auto hello = stream::decode_hello(frame->private_data)) {
    c.r.is_peer_ddpsock = true;
    c.r.peer_features = hello->features;
    const uint32_t ours = c.r.max_payload;
    c.r.max_payload = std::clamp(hello->max_payload, std::min(kMinPayload, ours), ours);
    if (hello->memory) note_invitation(c, *hello->memory);
    if ((hello->features & DDPSOCK_FEATURE_JOINS) == 0) withdraw_offer(c);
  } else {
    c.r.max_payload = std::min(c.r.max_payload.load(), payload_per_segment(fd));
  }
  return 0;
}

// A responder says no before it goes, so that the initiator knows why (RFC 5044 section 7.1.2).
static int reject(Connection& c, int fd, const char* why) {
  if (c.r.role == Role::kResponder) {
    Hold hold(c, c.tx.lease);
    if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0 && !c.tx.is_started)
      send_start_frame(c, fd, MSG_NOSIGNAL | MSG_DONTWAIT, StartFrame::kRejected);
  }
  return fail_refused(c, fd, EPROTO, why);
}

static void note_started(Connection& c) {
  if (!c.rx.is_started || !c.tx.is_started) return;
  StreamState starting = StreamState::kStarting;
  c.r.state.compare_exchange_strong(starting, StreamState::kOpen);
}

// kMpaRequest: all of one is there, good or bad. REQUIRES: `seen` is not empty.
static mpa::Sniff judge_first(Bytes seen) {
  const auto view = mpa::StartupView::over(seen, mpa::FrameKind::kRequest);
  if (view) return mpa::Sniff::kMpaRequest;
  if (view.error() == mpa::StartupError::kNotMpa) return mpa::Sniff::kNotMpa;
  return view.error() == mpa::StartupError::kTruncated ? mpa::Sniff::kNeedMore
                                                       : mpa::Sniff::kMpaRequest;
}

// Who is first decides, for all threads and processes. 0, or EPROTOTYPE if the verdict is plain.
int decide(Connection& c, int fd, Peer verdict) {
  Peer undecided = Peer::kUnknown;
  c.r.peer.compare_exchange_strong(undecided, verdict);
  if (c.r.peer != Peer::kPlain) return 0;
  // Who was first may have died before this.
  if (!c.is_state(StreamState::kPlain)) set_kernel_low_water(fd, c.rx.low_water);
  c.r.state.store(StreamState::kPlain, std::memory_order_release);
  if (is_watched()) tell_event(c, Observer::Event::kPlain, "the peer does not speak MPA");
  return EPROTOTYPE;
}

// The verdict on an accepted connection whose peer is unknown: only looks. 0: this is MPA. A call
// that must not wait decides by what is there; another gives a beginning the time to go on.
int sniff(Connection& c, int fd, int flags) {
  const Descriptor call(c, fd);
  uint8_t frame[MPA_MAX_STARTUP_SIZE];
  for (;;) {
    const ssize_t n = look_at_start(c, fd, frame, flags);
    if (fd < 0) return EBADF;
    if (n < 0) return errno;
    const auto first = n == 0 ? mpa::Sniff::kNotMpa : judge_first({frame, static_cast<size_t>(n)});
    if (first == mpa::Sniff::kMpaRequest) return decide(c, fd, Peer::kRequired);
    if (first == mpa::Sniff::kNeedMore && c.r.peer == Peer::kUnknown) {
      if (c.r.sniff_until.ns == 0) c.r.sniff_until = base::now() + kSniffPatience;
      const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
      // The kernel calls the socket readable all the while, so nothing but the clock can be waited
      // for.
      if (may_wait && base::now() < c.r.sniff_until) {
        const bool is_whole = rest_between_looks(c, fd);
        if (call.is_copy()) [[unlikely]]
          return EINTR;
        if (fd < 0) return EBADF;
        if (!is_whole && !does_restart(fd, SO_RCVTIMEO)) return EINTR;
        continue;
      }
    }
    return decide(c, fd, Peer::kPlain);
  }
}

// What a receive does that finds the verdict plain: it is the kernel's, Io::fail(EPROTOTYPE). But
// the bytes that decided may be fewer than SO_RCVLOWAT, which the kernel has only now; and one that
// takes a part and sleeps for the rest is woken by as many more.
Io go_on_as_plain(Connection& c, int fd, std::span<const iovec> to, int flags) {
  const Io plain = Io::fail(EPROTOTYPE);
  const auto mark = static_cast<size_t>(std::max(c.rx.low_water.load(), 1));
  if (mark == 1 || (flags & (MSG_DONTWAIT | MSG_PEEK)) != 0) return plain;
  const size_t wanted = std::min(mark, IoCursor(to).left());
  if (bytes_queued(fd) >= wanted || is_nonblocking(fd)) return plain;
  const int e = wait_ready(fd, POLLIN, deadline_of(fd, SO_RCVTIMEO));
  if ((fd = still(c, fd)) < 0) return Io::fail(EBADF);
  if (e == 0) return plain;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(to.data());
  message.msg_iovlen = to.size();
  const ssize_t n = base::sys.recvmsg(fd, &message, flags | MSG_DONTWAIT);
  if (n >= 0) return Io::ok(n);
  return Io::fail(errno == EAGAIN ? e : errno);
}

Io on_connected(Connection& c, int fd, bool wait) {
  if (c.r.role != Role::kInitiator || (c.r.peer == Peer::kProved && !c.r.is_strict))
    return Io::ok(0);
  {
    // Whoever has the lease sends the frame before anything else.
    Hold hold(c, c.tx.lease);
    const bool is_mine = !c.tx.is_started && hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0;
    if (is_mine && !c.tx.is_started) {
      if (const int e = send_start_frame(c, fd, MSG_NOSIGNAL | MSG_DONTWAIT); e != 0)
        return Io::fail(e);
    }
  }
  if (!wait) return Io::ok(0);
  const int e = await_start_frame(c, fd, true, kNever);
  return e == 0 ? Io::ok(0) : Io::fail(e);
}

}  // namespace ddpsock::engine
