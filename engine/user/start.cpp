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

const char* key_of(Role role) {
  return role == Role::kInitiator ? MPA_REQUEST_KEY : MPA_REPLY_KEY;
}
const char* key_expected_by(Role role) {
  return role == Role::kInitiator ? MPA_REPLY_KEY : MPA_REQUEST_KEY;
}

bool begins_like(const uint8_t* p, size_t n, const char* key) {
  return std::memcmp(p, key, std::min<size_t>(n, MPA_KEY_SIZE)) == 0;
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
  const bool needs_peer_first =
      r_.peer == Peer::kUnknown ||
      (is_awaited && !rx_.is_started && !is_state(StreamState::kFailed));
  if (!needs_peer_first) return 0;
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
  if (r_.role == Role::kResponder && is_awaited) {
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

int UserStream::send_start_frame(int fd, int flags) {
  uint8_t frame[MPA_STARTUP_HEADER_SIZE + MPA_ENHANCED_SIZE + DDPSOCK_HELLO_SIZE];
  const size_t size = write_start_frame(frame);
  const ssize_t n = base::sys.send(fd, frame, size, flags);
  if (n < 0) return errno;
  if (static_cast<size_t>(n) < size)
    return fail_lost(fd, "the kernel had no room for the MPA start-up frame");
  tx_.is_started = true;
  note_started();
  return 0;
}

size_t UserStream::write_start_frame(MutBytes out) {
  // A responder that has seen the Request answers in its revision; one that has not (proved peer)
  // knows it.
  const uint8_t revision = rx_.is_started ? r_.peer_revision : MPA_REVISION_ENHANCED;
  const bool is_enhanced = revision == MPA_REVISION_ENHANCED;
  stream::Hello hello;
  hello.max_payload = kPreferredPayload;
  const size_t pd = (is_enhanced ? MPA_ENHANCED_SIZE : 0) + DDPSOCK_HELLO_SIZE;
  uint8_t* p =
      std::copy_n(reinterpret_cast<const uint8_t*>(key_of(r_.role)), MPA_KEY_SIZE, out.data());
  *p++ = static_cast<uint8_t>((r_.wants_crc ? MPA_FLAG_CRC : 0) |
                              (is_enhanced ? MPA_FLAG_ENHANCED : 0));
  *p++ = revision;
  p = base::store_be16(p, static_cast<uint16_t>(pd));
  if (is_enhanced) p = base::store_be32(p, 0);  // no Reads outstanding, no peer-to-peer start
  p += stream::encode({p, DDPSOCK_HELLO_SIZE}, hello).value_or(0);
  return static_cast<size_t>(p - out.data());
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
    const ssize_t n =
        base::sys.recv(fd, frame + have, sizeof frame - have, (flags & MSG_DONTWAIT) | MSG_PEEK);
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
    if (!begins_like(frame, seen, key_expected_by(r_.role))) {
      r_.note_failure("the peer does not speak MPA");
      return EPROTO;
    }
    size_t size = MPA_STARTUP_HEADER_SIZE;
    if (seen >= size) size += base::load_be16(frame + MPA_PD_LENGTH_OFFSET);
    if (size > sizeof frame)
      return fail_refused(fd, EPROTO, "the peer's MPA private data is longer than 512 bytes");
    if (seen >= size) {
      base::sys.recv(fd, frame + have, size - have, MSG_DONTWAIT);
      free_received();
      return accept_start_frame(fd, {frame, size});
    }
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

int UserStream::accept_start_frame(int fd, Bytes frame) {
  const uint8_t flags = frame[MPA_FLAGS_OFFSET];
  const uint8_t revision = frame[MPA_REVISION_OFFSET];
  const bool is_enhanced = revision == MPA_REVISION_ENHANCED && (flags & MPA_FLAG_ENHANCED) != 0;
  Bytes private_data = frame.subspan(MPA_PRIVATE_DATA_OFFSET);
  if (r_.role == Role::kInitiator && (flags & MPA_FLAG_REJECT) != 0)
    return fail_refused(fd, ECONNREFUSED, "the peer rejected the connection (MPA Reply with R)");
  if (revision > MPA_REVISION_ENHANCED)
    return fail_refused(fd, EPROTO, "the peer's MPA revision is unknown");
  if (revision == MPA_REVISION_ENHANCED && !is_enhanced)
    return fail_refused(fd, EPROTO, "MPA revision 2 without the enhanced words");
  if ((flags & MPA_FLAG_MARKERS) != 0)
    return fail_refused(fd, EPROTO, "the peer needs Markers, which streams do not carry");
  if (is_enhanced) {
    if (private_data.size() < MPA_ENHANCED_SIZE)
      return fail_refused(fd, EPROTO, "MPA enhanced words are missing");
    private_data = private_data.subspan(MPA_ENHANCED_SIZE);
  }
  r_.peer_revision = revision;
  r_.has_crc = r_.wants_crc || (flags & MPA_FLAG_CRC) != 0;
  if (const auto hello = stream::decode_hello(private_data)) {
    r_.is_peer_ddpsock = true;
    r_.peer_features = hello->features;
    r_.max_payload = std::clamp(hello->max_payload, kMinPayload, r_.max_payload);
  } else {
    r_.max_payload = std::min(r_.max_payload, payload_per_segment(fd));
  }
  return 0;
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
    const ssize_t n = base::sys.recv(fd, key, sizeof key, (flags & MSG_DONTWAIT) | MSG_PEEK);
    if (n < 0) return errno;
    if (n == MPA_KEY_SIZE && begins_like(key, sizeof key, MPA_REQUEST_KEY)) return 0;
    if (n > 0 && begins_like(key, static_cast<size_t>(n), MPA_REQUEST_KEY)) {
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
