/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ddpsock: RDMA semantics for ordinary sockets. Public interface, C11 and C++.
 *
 * All options are at level SOL_DDP and take the value types named beside them. Without the library
 * loaded the kernel answers ENOPROTOOPT to each of them, so that a program can simply fall back.
 */
#ifndef DDPSOCK_DDPSOCK_H_
#define DDPSOCK_DDPSOCK_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Outside the range of protocol numbers, so that no kernel will ever take it for one of its own. */
#define SOL_DDP 0x44445000

/*
 * DDP_MODE (struct ddp_mode or plain int; get returns int): puts a socket in DDPMODE.
 *   unconnected: decides for the connection to be made; listening: for those to be accepted;
 *   connected: upgrades it; both sides must be quiescent and one must be the initiator.
 *   Errors: EINVAL (unknown mode or role), EOPNOTSUPP (not a TCP socket; DDP_MODE_MESSAGE),
 *   EALREADY (is in DDPMODE already), EISCONN (DDP_MODE_OFF on a connection in DDPMODE),
 *   EDESTADDRREQ (connected, role auto, and it is not known which side connected).
 *   On an upgraded socket whose peer sends something that is not MPA, calls fail with EPROTO and
 *   the bytes stay in the socket: DDP_MODE_OFF then gives it back as plain TCP.
 */
#define DDP_MODE 1
#define DDP_MODE_OFF 0
#define DDP_MODE_STREAM 1  /* byte stream, exactly TCP's semantics */
#define DDP_MODE_MESSAGE 2 /* pure RDMAP with message boundaries (not yet: EOPNOTSUPP) */

/* DDP_ENGINE (char[16], NUL-terminated; get: the engine that serves now, "user" or "shm"). Set
 * before the connection is made: "shm" (experimental: shared memory where both ends are the same
 * user's on this host, from the first bytes that both have exchanged on; the user engine
 * otherwise), "user", "auto" (now the same as "user"). EINVAL for an unknown name, EISCONN
 * afterwards. */
#define DDP_ENGINE 2

/* DDP_STATUS (struct ddp_status; get only): what this connection is and why. ENOTCONN before. */
#define DDP_STATUS 3

/* DDP_CRC (int, default 1): 0 offers to go without CRC; it is off only if both sides offer that
 * (RFC 5044 section 7.1). Set before the connection is made. */
#define DDP_CRC 4

/* Who sends the MPA Request when a connected socket is upgraded (RFC 5044 section 7.1). */
#define DDP_ROLE_AUTO 0 /* the side that connected */
#define DDP_ROLE_INITIATOR 1
#define DDP_ROLE_RESPONDER 2

struct ddp_mode {
  int mode; /* DDP_MODE_* */
  int role; /* DDP_ROLE_*; only for connected sockets */
};

/* Grows at the end only; the kernel-style length argument tells how much the library filled in. */
struct ddp_status {
  uint32_t mode;        /* DDP_MODE_* in force on the connection; OFF: plain TCP */
  uint32_t role;        /* DDP_ROLE_INITIATOR or DDP_ROLE_RESPONDER, 0 if plain */
  char engine[16];      /* "user" or "shm", "" if plain */
  char reason[80];      /* why it is in this mode, or why not, in words */
  uint32_t is_proved;   /* 1: same-host discovery proved the peer */
  uint32_t is_starting; /* 1: MPA start-up has not ended in both directions */
  uint32_t mpa_revision;
  uint32_t has_crc;
  uint32_t peer_features; /* from the peer's hello, 0 if it sent none */
  uint32_t max_payload;   /* stream bytes in one FPDU sent */
  uint64_t bytes_sent, bytes_received;
  uint64_t fpdus_sent, fpdus_received;
  uint64_t crcs_checked;
  char memory[80]; /* why it is, or is not, in shared memory, in words */
};

#ifdef __cplusplus
}
#endif

#endif /* DDPSOCK_DDPSOCK_H_ */
