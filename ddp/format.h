/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Direct Data Placement wire format, RFC 5041 sections 4 and 7.2: constants only, valid C11 and
 * C++. Offsets and sizes count from the first byte of the ULPDU; the MPA length is not part of it.
 */
#ifndef DDPSOCK_DDP_FORMAT_H_
#define DDPSOCK_DDP_FORMAT_H_

/* DDP Control Field, section 4.1: T | L | Rsvd 4 | DV 2. */
#define DDP_CTRL_TAGGED 0x80u
#define DDP_CTRL_LAST 0x40u
#define DDP_CTRL_RESERVED 0x3cu /* zero on transmit, not checked on receive */
#define DDP_CTRL_DV_MASK 0x03u
#define DDP_VERSION 1u

#define DDP_CTRL_OFFSET 0
#define DDP_CTRL_SIZE 1
#define DDP_STAG_SIZE 4
#define DDP_TO_SIZE 8
#define DDP_QN_SIZE 4
#define DDP_MSN_SIZE 4
#define DDP_MO_SIZE 4

/* Tagged Buffer Model, section 4.2. */
#define DDP_TAGGED_RSVDULP_SIZE 1
#define DDP_TAGGED_RSVDULP_OFFSET (DDP_CTRL_OFFSET + DDP_CTRL_SIZE)
#define DDP_TAGGED_STAG_OFFSET (DDP_TAGGED_RSVDULP_OFFSET + DDP_TAGGED_RSVDULP_SIZE)
#define DDP_TAGGED_TO_OFFSET (DDP_TAGGED_STAG_OFFSET + DDP_STAG_SIZE)
#define DDP_TAGGED_HEADER_SIZE (DDP_TAGGED_TO_OFFSET + DDP_TO_SIZE)

/* Untagged Buffer Model, section 4.3. RsvdULP is 40 bits: one byte, then a word. */
#define DDP_UNTAGGED_RSVDULP_SIZE 5
#define DDP_UNTAGGED_RSVDULP_OFFSET (DDP_CTRL_OFFSET + DDP_CTRL_SIZE)
#define DDP_UNTAGGED_RSVDULP_WORD_OFFSET (DDP_UNTAGGED_RSVDULP_OFFSET + 1)
#define DDP_UNTAGGED_QN_OFFSET (DDP_UNTAGGED_RSVDULP_OFFSET + DDP_UNTAGGED_RSVDULP_SIZE)
#define DDP_UNTAGGED_MSN_OFFSET (DDP_UNTAGGED_QN_OFFSET + DDP_QN_SIZE)
#define DDP_UNTAGGED_MO_OFFSET (DDP_UNTAGGED_MSN_OFFSET + DDP_MSN_SIZE)
#define DDP_UNTAGGED_HEADER_SIZE (DDP_UNTAGGED_MO_OFFSET + DDP_MO_SIZE)

#define DDP_MAX_HEADER_SIZE DDP_UNTAGGED_HEADER_SIZE
#define DDP_FIRST_MSN 1u /* per queue and direction; wraps modulo 2^32 */

/* Error types and codes, section 7.2. */
#define DDP_ETYPE_LOCAL_CATASTROPHIC 0x0
#define DDP_ETYPE_TAGGED 0x1
#define DDP_ETYPE_UNTAGGED 0x2
#define DDP_ETYPE_LLP 0x3 /* reserved for the LLP */

#define DDP_ECODE_LOCAL_CATASTROPHIC 0x00

#define DDP_ECODE_T_INVALID_STAG 0x00
#define DDP_ECODE_T_BASE_BOUNDS 0x01
#define DDP_ECODE_T_STAG_NOT_ASSOCIATED 0x02
#define DDP_ECODE_T_TO_WRAP 0x03
#define DDP_ECODE_T_VERSION 0x04

#define DDP_ECODE_U_INVALID_QN 0x01
#define DDP_ECODE_U_NO_BUFFER 0x02
#define DDP_ECODE_U_MSN_RANGE 0x03
#define DDP_ECODE_U_INVALID_MO 0x04
#define DDP_ECODE_U_TOO_LONG 0x05
#define DDP_ECODE_U_VERSION 0x06

#endif /* DDPSOCK_DDP_FORMAT_H_ */
