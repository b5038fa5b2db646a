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

#include "base/sys.h"
#include "engine/user/hold.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/user_stream.h"
#include "stream/hello.h"

namespace ddpsock::engine {
namespace {

// How long the first bytes may stay a mere beginning of the MPA key before they are taken for plain
// data. A peer that means it sends its Request in one piece.
constexpr Duration kSniffPatience = Duration::from_ms(200);
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

}  // namespace

// Before the send lease is taken: whatever has to come from the peer before we may speak.
int UserStream::prepare_to_send(int fd, int flags) {
  const bool is_awaited = r_.is_strict || r_.peer == Peer::kRequired;
  const bool needs_peer_first = r_.peer == Peer::kUnknown ||
                                (is_awaited && !rx_.is_started && !is_state(StreamState::kFailed));
  if (!needs_peer_first) {
    // Whoever wants to go without CRCs looks for the Reply that allows it, also if it never
    // receives.
    if (!r_.wants_crc && tx_.is_started && !rx_.is_started) {
      Hold hold(*this, rx_.lease);
      if (hold.take(fd, Hold::kReceive, MSG_DONTWAIT) == 0 && !rx_.is_started)
        start_receiving(fd, MSG_DONTWAIT);
    }
    return 0;
  }
  if (r_.role == Role::kInitiator) {
    if (const Io io = on_connected(fd, false); !io.is_ok()) return io.error;
  }
  Hold hold(*this, rx_.lease);
  if (const int e = hold.take(fd, Hold::kReceive, flags); e != 0) return e;
  if (rx_.is_started) return 0;
  if (r_.peer == Peer::kUnknown) {
    const int e = sniff(fd, MSG_DONTWAIT);
    if (e == 0) return start_receiving(fd, MSG_DONTWAIT);
    // The program speaks first and the peer has not said a word of MPA: it gets what a plain peer
    // expects.
    r_.state.store(StreamState::kPlain, std::memory_order_release);
    return EPROTOTYPE;
  }
  return await_start_frame(fd);
}

// Waits for the peer's frame whatever the socket's mode, within the start-up's deadline.
int UserStream::await_start_frame(int fd) {
  const Time deadline = base::now() + r_.start_timeout;
  for (;;) {
    const int e = start_receiving(fd, MSG_DONTWAIT);
    if (e == kEndOfStream) return fail_lost(fd, "the peer closed during MPA start-up");
    if (e != EAGAIN) return e;
    const int w = wait_ready(fd, POLLIN, deadline);
    if (w == EAGAIN)
      return fail_refused(fd, ETIMEDOUT, "no MPA start-up frame from the peer in time");
    if (w != 0) return w;
  }
}

int UserStream::start_receiving(int fd, int flags) {
  if (is_state(StreamState::kPlain)) return EPROTOTYPE;
  if (is_state(StreamState::kFailed)) return kEndOfStream;
  if (r_.peer == Peer::kUnknown) {
    if (const int e = sniff(fd, flags); e != 0) return e;
    r_.peer = Peer::kRequired;
  }
  const bool is_awaited = r_.is_strict || r_.peer == Peer::kRequired;
  if (r_.role == Role::kInitiator && is_awaited && !tx_.is_started) {
    if (const Io io = on_connected(fd, false); !io.is_ok()) return io.error;
  }
  if (const int e = receive_start_frame(fd, flags); e != 0) return e;
  rx_.is_started = true;
  note_started();
  if (r_.role == Role::kResponder && (is_awaited || !r_.has_crc)) {
    Hold hold(*this, tx_.lease);
    if (const int e = hold.take(fd, Hold::kSend, 0); e != 0) return e;
    if (!tx_.is_started) return send_start_frame(fd, MSG_NOSIGNAL);
  }
  return 0;
}

// REQUIRES: the send lease. The frame goes out in one segment with the FPDU that follows at once.
int UserStream::start_sending(int fd, int flags) {
  return send_start_frame(fd, (flags & (MSG_DONTWAIT | MSG_NOSIGNAL)) | MSG_MORE);
}

int UserStream::send_start_frame(int fd, int flags, bool is_rejected) {
  std::array<uint8_t, DDPSOCK_HELLO_MAX_SIZE> hello;
  stream::Hello words{.features = DDPSOCK_FEATURE_STREAM | DDPSOCK_FEATURE_ONE_SIDED,
                      .max_payload = kPreferredPayload};
  if (r_.wants_memory) words.features |= DDPSOCK_FEATURE_JOINS;
  if (!is_rejected) offer_memory(words);
  const size_t hello_size = stream::encode(hello, words).value_or(0);
  mpa::StartupFrame frame{.kind = kind_sent_by(r_.role),
                          .wants_crc = r_.wants_crc,
                          .is_rejected = is_rejected,
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
  const ssize_t n = base::sys.send(fd, bytes, *size, flags);
  if (n < 0) return errno;
  if (static_cast<size_t>(n) < *size)
    return fail_lost(fd, "the kernel had no room for the MPA start-up frame");
  tx_.is_started = true;
  note_started();
  return 0;
}

// A look that may sleep, and changes nothing if the process is killed in it.
ssize_t UserStream::look_at_start(int fd, MutBytes out, int flags) {
  rx_.is_asleep = true;
  const ssize_t n = base::sys.recv(fd, out.data(), out.size(), (flags & MSG_DONTWAIT) | MSG_PEEK);
  rx_.is_asleep = false;
  return n;
}

// Reads exactly one frame. What is not the beginning of one is left in the kernel untouched.
int UserStream::receive_start_frame(int fd, int flags) {
  uint8_t frame[MPA_MAX_STARTUP_SIZE];
  for (;;) {
    size_t have = 0;
    if (rx_.block != Arena::kNoBlock) {
      have = rx_.end;
      std::memcpy(frame, arena_.block_data(rx_.block), have);
    }
    const ssize_t n = look_at_start(fd, {frame + have, sizeof frame - have}, flags);
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
      free_received();
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
  if (rx_.block == Arena::kNoBlock) {
    rx_.block = arena_.allocate_block();
    if (rx_.block == Arena::kNoBlock) return false;
    rx_.beg = rx_.end = 0;
  }
  base::sys.recv(fd, arena_.block_data(rx_.block) + rx_.end, n, MSG_DONTWAIT);
  rx_.end += static_cast<uint32_t>(n);
  return true;
}

void UserStream::free_received() {
  if (rx_.block != Arena::kNoBlock) arena_.free_block(rx_.block);
  rx_.block = Arena::kNoBlock;
  rx_.beg = rx_.end = 0;
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
      send_start_frame(fd, MSG_NOSIGNAL | MSG_DONTWAIT, true);
  }
  return fail_refused(fd, EPROTO, why);
}

void UserStream::note_started() {
  if (!rx_.is_started || !tx_.is_started) return;
  StreamState starting = StreamState::kStarting;
  r_.state.compare_exchange_strong(starting, StreamState::kOpen);
}

// The verdict on an accepted connection whose peer is unknown: only looks. 0: this is MPA.
int UserStream::sniff(int fd, int flags) {
  uint8_t key[MPA_KEY_SIZE];
  for (;;) {
    const ssize_t n = look_at_start(fd, key, flags);
    if (n < 0) return errno;
    const auto verdict = mpa::sniff_request({key, static_cast<size_t>(n)});
    if (verdict == mpa::Sniff::kMpaRequest) return 0;
    if (verdict == mpa::Sniff::kNeedMore && n > 0) {
      if (r_.sniff_until.ns == 0) r_.sniff_until = base::now() + kSniffPatience;
      if (base::now() < r_.sniff_until) {
        if ((flags & MSG_DONTWAIT) != 0 || is_nonblocking(fd)) return EAGAIN;
        // The kernel calls the socket readable all the while, so nothing but the clock can be
        // waited for.
        base::sys.poll(nullptr, 0, 1);
        continue;
      }
    }
    r_.state.store(StreamState::kPlain, std::memory_order_release);
    return EPROTOTYPE;
  }
}

Io UserStream::on_connected(int fd, bool wait) {
  if (r_.role != Role::kInitiator || (r_.peer == Peer::kProved && !r_.is_strict)) return Io::ok(0);
  {
    Hold hold(*this, tx_.lease);
    if (const int e = hold.take(fd, Hold::kSend, 0); e != 0) return Io::fail(e);
    if (!tx_.is_started) {
      if (const int e = send_start_frame(fd, MSG_NOSIGNAL | MSG_DONTWAIT); e != 0)
        return Io::fail(e);
    }
  }
  if (!wait) return Io::ok(0);
  Hold hold(*this, rx_.lease);
  if (const int e = hold.take(fd, Hold::kReceive, 0); e != 0) return Io::fail(e);
  if (rx_.is_started) return Io::ok(0);
  const int e = await_start_frame(fd);
  return e == 0 ? Io::ok(0) : Io::fail(e);
}

}  // namespace ddpsock::engine
