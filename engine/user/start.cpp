// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up of a stream (RFC 5044 section 7.1, RFC 6581). Between proved peers each direction
// starts by itself: a side's start-up frame travels with its first FPDU and nobody waits. Towards
// anyone else, and with DDPSOCK_START=strict, FPDUs wait for the Reply. Leases are taken in the
// order receive, send.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cassert>

#include "base/keep_errno.h"
#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/patience.h"
#include "engine/user/sender.h"
#include "engine/user/sleep.h"
#include "engine/user/user_stream.h"
#include "stream/hello.h"

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

// Before the send lease is taken: whatever has to come from the peer before we may speak.
int UserStream::prepare_to_send(int fd, int flags) {
  if (const int e = decide_before_writing(fd); e != 0) return e;
  if (is_awaited() && !rx_.is_started && !is_state(StreamState::kFailed)) {
    if (r_.role == Role::kInitiator) {
      if (const Io io = on_connected(fd, false); !io.is_ok()) return io.error;
    }
    const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
    const int e = await_start_frame(fd, may_wait, deadline_of(fd, SO_SNDTIMEO));
    return e == 0 && still(fd) < 0 ? EBADF : e;
  }
  // Whoever wants to go without CRCs looks for the Reply that allows it, also if it never receives.
  if (!r_.wants_crc && tx_.is_started && !rx_.is_started) {
    Hold hold(*this, rx_.lease);
    if (hold.try_take() && !rx_.is_started) start_receiving(fd, MSG_DONTWAIT);
  }
  return 0;
}

// For calls that cannot wait for the peer's first bytes. A reader may sleep on them meanwhile, with
// the receive lease: nothing is taken here. 0, or EPROTOTYPE.
int UserStream::decide_before_writing(int fd) {
  if (r_.peer == Peer::kPlain) return decide(fd, Peer::kPlain);
  if (r_.peer != Peer::kUnknown) return 0;
  const base::KeepErrno keep;
  uint8_t frame[MPA_MAX_STARTUP_SIZE];
  const ssize_t n = base::sys.recv(fd, frame, sizeof frame, MSG_PEEK | MSG_DONTWAIT);
  const bool is_mpa =
      n > 0 && judge_first({frame, static_cast<size_t>(n)}) == mpa::Sniff::kMpaRequest;
  return decide(fd, is_mpa ? Peer::kRequired : Peer::kPlain);
}

// Until the peer's frame has been read, by whichever thread: the lease is held for a look only, and
// a reader that sleeps with it reads the frame for us too.
int UserStream::await_start_frame(int fd, bool may_wait, Time patience) {
  const Time deadline = base::now() + r_.start_timeout;
  while (!rx_.is_started) {
    Duration pause = kBesideReader;
    {
      Hold hold(*this, rx_.lease);
      const auto outcome = hold.attempt();
      if (outcome == base::Lease::Outcome::kHeldByMe) return EAGAIN;
      if (outcome == base::Lease::Outcome::kInherited) {
        if (const int e = hold.inherit(fd); e != 0) return e;
      }
      if (outcome != base::Lease::Outcome::kBusy) {
        if (rx_.is_started) return 0;
        const int e = start_receiving(fd, MSG_DONTWAIT);
        if (e == kEndOfStream) return fail_lost(fd, "the peer closed during MPA start-up");
        if (e != EAGAIN) return e;
        pause = kAlone;
      }
    }
    if (!may_wait) return EAGAIN;
    const Time now = base::now();
    if (now >= deadline)
      return fail_refused(fd, ETIMEDOUT, "no MPA start-up frame from the peer in time");
    if (now >= patience) return EAGAIN;
    const int e = pause == kAlone
                      ? wait_ready(fd, POLLIN, std::min({deadline, patience, now + pause}))
                      : nap(pause);
    if ((fd = still(fd)) < 0) return EBADF;
    if (e == EINTR && does_restart(fd, SO_SNDTIMEO)) continue;
    if (e != 0 && e != EAGAIN) return e;
  }
  return 0;
}

int UserStream::start_receiving(int fd, int flags) {
  if (is_state(StreamState::kPlain)) return EPROTOTYPE;
  if (is_state(StreamState::kFailed)) return kEndOfStream;
  if (r_.peer == Peer::kUnknown) {
    if (const int e = sniff(fd, flags); e != 0) return e;
    if ((fd = still(fd)) < 0) return EBADF;
  }
  if (r_.role == Role::kInitiator && is_awaited() && !tx_.is_started) {
    if (const Io io = on_connected(fd, false); !io.is_ok()) return io.error;
  }
  if (const int e = receive_start_frame(fd, flags); e != 0) return e;
  rx_.is_started = true;
  note_started();
  answer(fd);
  return is_state(StreamState::kFailed) ? ECONNRESET : 0;
}

// Our frame, at once, to a peer that says it cannot go on without, and the Reply also to any that
// may be waiting for it, whatever is known here of it. Whoever has the send lease sends the frame
// before anything else.
void UserStream::answer(int fd) {
  const bool is_asked = (r_.peer_features & DDPSOCK_FEATURE_HURRY) != 0;
  const bool is_reply_due =
      r_.role == Role::kResponder && (is_awaited() || !r_.has_crc || rx_.was_alone);
  if (tx_.is_started || !(is_asked || is_reply_due)) return;
  // Nobody may be there to read it, and the kernel would reset the connection.
  if (!is_awaited() && is_ready_now(fd, POLLRDHUP)) return;
  Hold hold(*this, tx_.lease);
  if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) != 0 || tx_.is_started) return;
  send_start_frame(fd, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// REQUIRES: the send lease. The frame goes out in one segment with the FPDU that follows at once.
int UserStream::start_sending(int fd, int flags) {
  return send_start_frame(fd, (flags & (MSG_DONTWAIT | MSG_NOSIGNAL)) | MSG_MORE);
}

int UserStream::send_start_frame(int fd, int flags, Frame kind) {
  std::array<uint8_t, DDPSOCK_HELLO_MAX_SIZE> hello;
  stream::Hello words{
      .features = DDPSOCK_FEATURE_STREAM | DDPSOCK_FEATURE_ONE_SIDED | DDPSOCK_FEATURE_RAW,
      .max_payload = kPreferredPayload};
  if (r_.wants_memory) words.features |= DDPSOCK_FEATURE_JOINS;
  if (kind == Frame::kHurried) words.features |= DDPSOCK_FEATURE_HURRY;
  if (kind != Frame::kRejected) offer_memory(words);
  const size_t hello_size = stream::encode(hello, words).value_or(0);
  mpa::StartupFrame frame{.kind = kind_sent_by(r_.role),
                          .wants_crc = r_.wants_crc,
                          .is_rejected = kind == Frame::kRejected,
                          .private_data = Bytes(hello).first(hello_size)};
  // A responder answers in the Request's revision and form; one that has not seen it has a proved
  // peer, which speaks ours.
  bool is_enhanced = true;
  if (r_.has_peer_revision) {
    frame.revision = r_.peer_revision;
    is_enhanced = r_.is_peer_enhanced;
  }
  // No Reads outstanding, no peer-to-peer start.
  if (is_enhanced) frame.enhanced = mpa::Enhanced{};

  uint8_t bytes[MPA_STARTUP_HEADER_SIZE + MPA_ENHANCED_SIZE + DDPSOCK_HELLO_MAX_SIZE];
  const auto size = mpa::write_startup(frame, bytes);
  assert(size.has_value());
  if (r_.remote.family == 0) r_.note_addresses(fd);
  const ssize_t n = without_cancellation([&] { return base::sys.send(fd, bytes, *size, flags); });
  if (n < 0) return errno;
  if (static_cast<size_t>(n) < *size)
    return fail_lost(fd, "the kernel had no room for the MPA start-up frame");
  tx_.is_started = true;
  note_started();
  return 0;
}

// A look that may sleep, and changes nothing if the process is killed in it.
ssize_t UserStream::look_at_start(int& fd, MutBytes out, int flags) {
  const int look = (flags & MSG_DONTWAIT) | MSG_PEEK;
  const ssize_t n =
      sleep_in(rx_.is_asleep, [&] { return base::sys.recv(fd, out.data(), out.size(), look); });
  if ((flags & MSG_DONTWAIT) == 0) fd = still(fd);
  return n;
}

// Reads exactly one frame. Bytes one by one do not make it wait any longer. What is not the
// beginning of one is left in the kernel untouched.
int UserStream::receive_start_frame(int fd, int flags) {
  uint8_t frame[MPA_MAX_STARTUP_SIZE];
  Patience patience(fd);
  for (bool is_first = true;; is_first = false) {
    size_t have = 0;
    if (!is_first && (flags & MSG_DONTWAIT) == 0 && patience.is_over()) return EAGAIN;
    if (const Bytes before = inbox_.unparsed(arena_); !before.empty()) {
      have = before.size();
      std::memcpy(frame, before.data(), have);
    }
    const ssize_t n = look_at_start(fd, {frame + have, sizeof frame - have}, flags);
    if (fd < 0) return EBADF;
    if (n < 0) {
      const int e = errno;
      if (e == EAGAIN && have > 0 && base::now() - r_.opened_at > r_.start_timeout)
        return fail_refused(fd, ETIMEDOUT, "the peer's MPA start-up frame never ended");
      return e;
    }
    if (n == 0)
      return have == 0 ? kEndOfStream
                       : fail_lost(fd, "the peer closed inside its MPA start-up frame");
    const size_t seen = have + static_cast<size_t>(n);
    const auto view = mpa::StartupView::over({frame, seen}, kind_expected_by(r_.role));
    if (view) {
      base::sys.recv(fd, frame + have, view->size() - have, MSG_DONTWAIT);
      inbox_.free_buffer(arena_);
      rx_.was_alone = seen == view->size();
      return accept_start_frame(fd, *view);
    }
    if (view.error() == mpa::StartupError::kNotMpa) {
      r_.note_failure(mpa::to_text(view.error()));
      return EPROTO;
    }
    if (view.error() != mpa::StartupError::kTruncated)
      return fail_refused(fd, EPROTO, mpa::to_text(view.error()));
    if (!buffer_start_bytes(fd, static_cast<size_t>(n)))
      return fail_lost(fd, "no memory for received bytes");
  }
}

// A frame that came in pieces does not leave the socket readable (I2).
bool UserStream::buffer_start_bytes(int fd, size_t n) {
  uint8_t* data = inbox_.buffer(arena_);
  if (data == nullptr) return false;
  base::sys.recv(fd, data + inbox_.end, n, MSG_DONTWAIT);
  inbox_.end += static_cast<uint32_t>(n);
  return true;
}

int UserStream::accept_start_frame(int fd, mpa::StartupView view) {
  r_.peer_revision = std::min<uint8_t>(view.revision(), MPA_REVISION_ENHANCED);
  const auto frame = mpa::StartupFrame::from(view);
  if (!frame) return reject(fd, mpa::to_text(frame.error()));
  r_.is_peer_enhanced = frame->enhanced.has_value();
  r_.has_peer_revision = true;
  if (frame->is_rejected)
    return fail_refused(fd, ECONNREFUSED, "the peer rejected the connection (MPA Reply with R)");
  if (frame->needs_markers) return reject(fd, "the peer needs Markers, which streams do not carry");
  r_.has_crc = r_.wants_crc || frame->wants_crc;
  if (const auto hello = stream::decode_hello(frame->private_data)) {
    r_.is_peer_ddpsock = true;
    r_.peer_features = hello->features;
    const uint32_t ours = r_.max_payload;
    r_.max_payload = std::clamp(hello->max_payload, std::min(kMinPayload, ours), ours);
    note_invitation(*hello);
    if ((hello->features & DDPSOCK_FEATURE_JOINS) == 0) withdraw_offer();
  } else {
    r_.max_payload = std::min(r_.max_payload.load(), payload_per_segment(fd));
  }
  return 0;
}

// A responder says no before it goes, so that the initiator knows why (RFC 5044 section 7.1.2).
int UserStream::reject(int fd, const char* why) {
  if (r_.role == Role::kResponder) {
    Hold hold(*this, tx_.lease);
    if (hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0 && !tx_.is_started)
      send_start_frame(fd, MSG_NOSIGNAL | MSG_DONTWAIT, Frame::kRejected);
  }
  return fail_refused(fd, EPROTO, why);
}

void UserStream::note_started() {
  if (!rx_.is_started || !tx_.is_started) return;
  StreamState starting = StreamState::kStarting;
  r_.state.compare_exchange_strong(starting, StreamState::kOpen);
}

// kMpaRequest: all of one is there, good or bad. REQUIRES: `seen` is not empty.
mpa::Sniff UserStream::judge_first(Bytes seen) {
  const auto view = mpa::StartupView::over(seen, mpa::FrameKind::kRequest);
  if (view) return mpa::Sniff::kMpaRequest;
  if (view.error() == mpa::StartupError::kNotMpa) return mpa::Sniff::kNotMpa;
  return view.error() == mpa::StartupError::kTruncated ? mpa::Sniff::kNeedMore
                                                       : mpa::Sniff::kMpaRequest;
}

// Who is first decides, for all threads and processes. 0, or EPROTOTYPE if the verdict is plain.
int UserStream::decide(int fd, Peer verdict) {
  Peer undecided = Peer::kUnknown;
  if (r_.peer.compare_exchange_strong(undecided, verdict) && verdict == Peer::kPlain)
    set_kernel_low_water(fd, rx_.low_water);
  if (r_.peer != Peer::kPlain) return 0;
  r_.state.store(StreamState::kPlain, std::memory_order_release);
  return EPROTOTYPE;
}

// The verdict on an accepted connection whose peer is unknown: only looks. 0: this is MPA. A call
// that must not wait decides by what is there; another gives a beginning the time to go on.
int UserStream::sniff(int fd, int flags) {
  uint8_t frame[MPA_MAX_STARTUP_SIZE];
  for (;;) {
    const ssize_t n = look_at_start(fd, frame, flags);
    if (fd < 0) return EBADF;
    if (n < 0) return errno;
    const auto first = n == 0 ? mpa::Sniff::kNotMpa : judge_first({frame, static_cast<size_t>(n)});
    if (first == mpa::Sniff::kMpaRequest) return decide(fd, Peer::kRequired);
    if (first == mpa::Sniff::kNeedMore && r_.peer == Peer::kUnknown) {
      if (r_.sniff_until.ns == 0) r_.sniff_until = base::now() + kSniffPatience;
      const bool may_wait = (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd);
      // The kernel calls the socket readable all the while, so nothing but the clock can be waited
      // for.
      if (may_wait && base::now() < r_.sniff_until) {
        const int e = nap(Duration::from_ms(1));
        if ((fd = still(fd)) < 0) return EBADF;
        if (e != 0 && !(e == EINTR && does_restart(fd, SO_RCVTIMEO))) return e;
        continue;
      }
    }
    return decide(fd, Peer::kPlain);
  }
}

// What a receive does that finds the verdict plain: it is the kernel's, Io::fail(EPROTOTYPE). But
// the bytes that decided may be fewer than SO_RCVLOWAT, which the kernel has only now; and one that
// takes a part and sleeps for the rest is woken by as many more.
Io UserStream::go_on_as_plain(int fd, std::span<const iovec> to, int flags) {
  const Io plain = Io::fail(EPROTOTYPE);
  const auto mark = static_cast<size_t>(std::max(rx_.low_water.load(), 1));
  if (mark == 1 || (flags & (MSG_DONTWAIT | MSG_PEEK)) != 0) return plain;
  const size_t wanted = std::min(mark, IoCursor(to).left());
  if (bytes_queued(fd) >= wanted || is_nonblocking(fd)) return plain;
  const int e = wait_ready(fd, POLLIN, deadline_of(fd, SO_RCVTIMEO));
  if ((fd = still(fd)) < 0) return Io::fail(EBADF);
  if (e == 0) return plain;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(to.data());
  message.msg_iovlen = to.size();
  const ssize_t n = base::sys.recvmsg(fd, &message, flags | MSG_DONTWAIT);
  if (n >= 0) return Io::ok(n);
  return Io::fail(errno == EAGAIN ? e : errno);
}

Io UserStream::on_connected(int fd, bool wait) {
  if (r_.role != Role::kInitiator || (r_.peer == Peer::kProved && !r_.is_strict)) return Io::ok(0);
  {
    // Whoever has the lease sends the frame before anything else.
    Hold hold(*this, tx_.lease);
    const bool is_mine = !tx_.is_started && hold.take(fd, Hold::kSend, MSG_DONTWAIT) == 0;
    if (is_mine && !tx_.is_started) {
      if (const int e = send_start_frame(fd, MSG_NOSIGNAL | MSG_DONTWAIT); e != 0)
        return Io::fail(e);
    }
  }
  if (!wait) return Io::ok(0);
  const int e = await_start_frame(fd, true, kNever);
  return e == 0 ? Io::ok(0) : Io::fail(e);
}

}  // namespace ddpsock::engine
