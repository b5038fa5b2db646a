/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Wire constants of MPA (RFC 5044) and its enhanced connection set-up (RFC 6581). Constants only,
 * valid C11 and C++, shared by the cores, the kernel module and the firmware. doc/mpa-format.md has
 * the pictures. Sizes are in octets; multi-octet fields are big-endian except the CRC.
 *
 *   start-up frame   key 16 | flags 1 | revision 1 | PD_Length 2 | private data PD_Length
 *   private data     (revision 2 with S) A B IRD 2 | C D ORD 2 | the ULP's
 *   FPDU             ULPDU_Length 2 | ULPDU | pad 0..3 | CRC 4      with a Marker at each 512th
 * octet Marker           reserved 2 | FPDUPTR 2
 */
#ifndef DDPSOCK_MPA_FORMAT_H_
#define DDPSOCK_MPA_FORMAT_H_

/* Start-up frames, RFC 5044 section 7.1.1. The keys are sent without a NUL. */
#define MPA_REQUEST_KEY "MPA ID Req Frame"
#define MPA_REPLY_KEY "MPA ID Rep Frame"

#define MPA_KEY_OFFSET 0
#define MPA_KEY_SIZE 16
#define MPA_FLAGS_OFFSET (MPA_KEY_OFFSET + MPA_KEY_SIZE)
#define MPA_FLAGS_SIZE 1
#define MPA_REVISION_OFFSET (MPA_FLAGS_OFFSET + MPA_FLAGS_SIZE)
#define MPA_REVISION_SIZE 1
#define MPA_PD_LENGTH_OFFSET (MPA_REVISION_OFFSET + MPA_REVISION_SIZE)
#define MPA_PD_LENGTH_SIZE 2
#define MPA_PRIVATE_DATA_OFFSET (MPA_PD_LENGTH_OFFSET + MPA_PD_LENGTH_SIZE)
#define MPA_STARTUP_HEADER_SIZE MPA_PRIVATE_DATA_OFFSET

#define MPA_FLAG_MARKERS 0x80u  /* M: the sender of this frame needs Markers in what it receives */
#define MPA_FLAG_CRC 0x40u      /* C: the sender wants CRCs; on if either side does */
#define MPA_FLAG_REJECT 0x20u   /* R: Reply only */
#define MPA_FLAG_ENHANCED 0x10u /* S: revision 2 only, RFC 6581 section 6 */

#define MPA_REVISION_RDMAC 0u
#define MPA_REVISION_IETF 1u
#define MPA_REVISION_ENHANCED 2u

/* PD_Length, the four enhanced octets included. */
#define MPA_MAX_PD_LENGTH 512
#define MPA_MAX_STARTUP_SIZE (MPA_STARTUP_HEADER_SIZE + MPA_MAX_PD_LENGTH)
/*
 * What a sender should stay within: siw keeps the length in eight bits with the enhanced octets
 * added, and cxgb4 has room for 256.
 */
#define MPA_PRACTICAL_PRIVATE_DATA 251

/* Enhanced words, first in the private data, RFC 6581 section 6. */
#define MPA_ENHANCED_IRD_OFFSET 0
#define MPA_ENHANCED_IRD_SIZE 2
#define MPA_ENHANCED_ORD_OFFSET (MPA_ENHANCED_IRD_OFFSET + MPA_ENHANCED_IRD_SIZE)
#define MPA_ENHANCED_ORD_SIZE 2
#define MPA_ENHANCED_SIZE (MPA_ENHANCED_ORD_OFFSET + MPA_ENHANCED_ORD_SIZE)

#define MPA_IRD_PEER_TO_PEER 0x8000u /* A */
#define MPA_IRD_RTR_SEND 0x4000u     /* B: zero-length Send */
#define MPA_ORD_RTR_WRITE 0x8000u    /* C: zero-length RDMA Write */
#define MPA_ORD_RTR_READ 0x4000u     /* D: zero-length RDMA Read */
#define MPA_DEPTH_MASK 0x3fffu
#define MPA_DEPTH_NOT_NEGOTIATED 0x3fffu

/* FPDU, RFC 5044 sections 4.1 and 4.4. */
#define MPA_ULPDU_LENGTH_SIZE 2
#define MPA_ALIGNMENT 4
#define MPA_MAX_PAD (MPA_ALIGNMENT - 1)
#define MPA_CRC_SIZE 4
#define MPA_MAX_ULPDU 65535
#define MPA_MIN_MULPDU 128

/* Markers, RFC 5044 section 4.3. The first one precedes the first FPDU. */
#define MPA_MARKER_INTERVAL 512
#define MPA_MARKER_RESERVED_SIZE 2
#define MPA_MARKER_FPDUPTR_OFFSET MPA_MARKER_RESERVED_SIZE
#define MPA_MARKER_FPDUPTR_SIZE 2
#define MPA_MARKER_SIZE (MPA_MARKER_FPDUPTR_OFFSET + MPA_MARKER_FPDUPTR_SIZE)
/* Octets between two Markers. */
#define MPA_MARKER_SPACING (MPA_MARKER_INTERVAL - MPA_MARKER_SIZE)
/* With Markers the ULPDU stays below this, or FPDUPTR would not reach back to its length field. */
#define MPA_MAX_ULPDU_WITH_MARKERS 64768

/* Error codes of a Terminate with layer LLP and type MPA, RFC 5044 section 8 and RFC 6581
 * section 7. */
#define MPA_TERM_CONNECTION_LOST 1u
#define MPA_TERM_CRC 2u
#define MPA_TERM_MARKER 3u /* Marker and ULPDU_Length do not agree */
#define MPA_TERM_INVALID_FRAME 4u
#define MPA_TERM_LOCAL_CATASTROPHIC 5u
#define MPA_TERM_INSUFFICIENT_IRD 6u
#define MPA_TERM_NO_MATCHING_RTR 7u

#endif /* DDPSOCK_MPA_FORMAT_H_ */
