// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a byte stream is to its connection: words that what relatives share and its own contract
// (stream/stream.h) have in common.
#ifndef DDPSOCK_RELATIVES_STREAM_ATTR_H_
#define DDPSOCK_RELATIVES_STREAM_ATTR_H_

#include <netinet/in.h>

#include <cstdint>

#include "base/clock.h"

namespace ddpsock::engine {

// Who sends the MPA Request (RFC 5044 section 7.1): the side that connected, unless told otherwise.
enum class Role : uint8_t { kInitiator, kResponder };

// What is known of the peer when the stream is opened.
enum class Peer : uint8_t {
  kProved,  // known to be in DDPMODE on this very connection: start-up frames travel with the first
            // FPDU
  kRequired,  // a rule says so; a peer that turns out not to speak MPA is an error (EPROTO)
  // Responder only: the first bytes decide. Until then every call does what it does on plain TCP:
  // one that must not wait, or writes, makes the connection plain unless a whole Request is there.
  kUnknown,
  kPlain,  // they have decided so; not to open a stream with
};

struct StreamAttr {
  Role role = Role::kInitiator;
  Peer peer = Peer::kProved;
  bool is_strict =
      false;  // DDPSOCK_START=strict: no FPDU before the Reply, also between proved peers
  bool may_share_memory = false;  // with a proved peer of the same user on this host (shm)
  // Not from the first byte on, if the last connections were too short for it.
  bool may_share_later = false;
  bool wants_crc = true;  // CRC is used unless both sides want it off (RFC 5044 section 7.1)
  uint64_t cookie = 0;    // SO_COOKIE of the socket; 0: to be asked for
  // The connection's two ends, in IPv4 or IPv6; null: to be asked for.
  const sockaddr_in6* local = nullptr;
  const sockaddr_in6* remote = nullptr;
  const char* verdict = "";  // why the stream is in DDPMODE, in words; copied
  uint32_t max_payload = 0;  // bytes of stream in one FPDU; 0: the engine's own choice
  Duration start_timeout = Duration::from_ms(10'000);
};

enum class StreamState : uint8_t {
  kStarting,  // start-up frames not yet exchanged in both directions
  kOpen,      // DDPMODE in both directions
  kTurning,   // returning to plain TCP: one direction is, or bytes read before are still to deliver
  kPlain,   // decided: plain TCP. The caller drops the Stream and passes calls through from now on
  kFailed,  // ended by a protocol error or the peer's Terminate; `failure` says which
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_RELATIVES_STREAM_ATTR_H_
