/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The RDMAP wire format, RFC 5040 section 4 and RFC 7306 sections 4 to 6: constants only, valid C11
 * and C++. Offsets count from the first byte after the DDP header unless said otherwise. */
#ifndef DDPSOCK_RDMAP_FORMAT_H_
#define DDPSOCK_RDMAP_FORMAT_H_

/* RDMAP Control Field (the first byte of DDP's RsvdULP), RFC 5040 section 4.1: RV 2 | Rsv 2 |
 * Opcode 4. Receivers accept both versions: 01b is the IETF's, 00b the RDMA Consortium's. */
#define RDMAP_CTRL_VERSION_SHIFT 6
#define RDMAP_CTRL_VERSION_MASK 0xc0u
#define RDMAP_CTRL_RESERVED 0x30u /* zero on transmit, ignored on receive */
#define RDMAP_CTRL_OPCODE_MASK 0x0fu
#define RDMAP_VERSION_IETF 1u
#define RDMAP_VERSION_CONSORTIUM 0u
#define RDMAP_CTRL_IETF (RDMAP_VERSION_IETF << RDMAP_CTRL_VERSION_SHIFT)

/* Opcodes: RFC 5040 figure 4, RFC 7306 figure 2. */
#define RDMAP_OP_WRITE 0x0
#define RDMAP_OP_READ_REQUEST 0x1
#define RDMAP_OP_READ_RESPONSE 0x2
#define RDMAP_OP_SEND 0x3
#define RDMAP_OP_SEND_INVALIDATE 0x4
#define RDMAP_OP_SEND_SE 0x5
#define RDMAP_OP_SEND_SE_INVALIDATE 0x6
#define RDMAP_OP_TERMINATE 0x7
#define RDMAP_OP_IMMEDIATE 0x8
#define RDMAP_OP_IMMEDIATE_SE 0x9
#define RDMAP_OP_ATOMIC_REQUEST 0xa
#define RDMAP_OP_ATOMIC_RESPONSE 0xb

/* DDP queue numbers: RFC 5040 figure 4, RFC 7306 section 10.2. */
#define RDMAP_QN_SEND 0u
#define RDMAP_QN_READ_REQUEST 1u /* Atomic Requests too */
#define RDMAP_QN_TERMINATE 2u
#define RDMAP_QN_ATOMIC_RESPONSE 3u
#define RDMAP_QN_COUNT 4u

/* RDMA Read Request Header, RFC 5040 section 4.4. */
#define RDMAP_RR_SINK_STAG_OFFSET 0
#define RDMAP_RR_SINK_TO_OFFSET (RDMAP_RR_SINK_STAG_OFFSET + 4)
#define RDMAP_RR_LENGTH_OFFSET (RDMAP_RR_SINK_TO_OFFSET + 8)
#define RDMAP_RR_SOURCE_STAG_OFFSET (RDMAP_RR_LENGTH_OFFSET + 4)
#define RDMAP_RR_SOURCE_TO_OFFSET (RDMAP_RR_SOURCE_STAG_OFFSET + 4)
#define RDMAP_READ_REQUEST_SIZE (RDMAP_RR_SOURCE_TO_OFFSET + 8)

/* Atomic Request Header, RFC 7306 section 5.2.1. The first word is reserved 28 | AOpCode 4. */
#define RDMAP_AR_OPCODE_OFFSET 0
#define RDMAP_AR_REQUEST_ID_OFFSET (RDMAP_AR_OPCODE_OFFSET + 4)
#define RDMAP_AR_STAG_OFFSET (RDMAP_AR_REQUEST_ID_OFFSET + 4)
#define RDMAP_AR_TO_OFFSET (RDMAP_AR_STAG_OFFSET + 4)
#define RDMAP_AR_DATA_OFFSET (RDMAP_AR_TO_OFFSET + 8)
#define RDMAP_AR_MASK_OFFSET (RDMAP_AR_DATA_OFFSET + 8)
#define RDMAP_AR_COMPARE_OFFSET (RDMAP_AR_MASK_OFFSET + 8)
#define RDMAP_AR_COMPARE_MASK_OFFSET (RDMAP_AR_COMPARE_OFFSET + 8)
#define RDMAP_ATOMIC_REQUEST_SIZE (RDMAP_AR_COMPARE_MASK_OFFSET + 8)
#define RDMAP_AOP_MASK 0x0fu
#define RDMAP_AOP_FETCH_ADD 0x0
#define RDMAP_AOP_RESERVED 0x1 /* Swap in the drafts; reserved by RFC 7306 section 10.1 */
#define RDMAP_AOP_CMP_SWAP 0x2
#define RDMAP_ATOMIC_OPERAND_SIZE 8 /* and the alignment of its target */

/* Atomic Response Header, RFC 7306 section 5.2.2. */
#define RDMAP_AS_REQUEST_ID_OFFSET 0
#define RDMAP_AS_VALUE_OFFSET (RDMAP_AS_REQUEST_ID_OFFSET + 4)
#define RDMAP_ATOMIC_RESPONSE_SIZE (RDMAP_AS_VALUE_OFFSET + 8)

/* Immediate Data, RFC 7306 section 6.2: exactly these bytes follow the DDP header. */
#define RDMAP_IMMEDIATE_SIZE 8

/* Terminate Header, RFC 5040 section 4.8: Layer 4 | EType 4 | Code 8 | M D R | Reserved 13, then
 * the DDP Segment Length and the terminated headers as far as M, D and R say. */
#define RDMAP_TERM_LAYER_ETYPE_OFFSET 0
#define RDMAP_TERM_CODE_OFFSET (RDMAP_TERM_LAYER_ETYPE_OFFSET + 1)
#define RDMAP_TERM_FLAGS_OFFSET (RDMAP_TERM_CODE_OFFSET + 1)
#define RDMAP_TERM_CONTROL_SIZE 4
#define RDMAP_TERM_SEGMENT_LENGTH_SIZE 2
#define RDMAP_TERM_M 0x80u /* DDP Segment Length valid */
#define RDMAP_TERM_D 0x40u /* DDP header included; the length field is present */
#define RDMAP_TERM_R 0x20u /* RDMA Read Request Header included */
/* Control, length, the larger DDP header, a Read Request Header. */
#define RDMAP_TERM_MAX_SIZE \
  (RDMAP_TERM_CONTROL_SIZE + RDMAP_TERM_SEGMENT_LENGTH_SIZE + 18 + RDMAP_READ_REQUEST_SIZE)
#define RDMAP_TERM_MSN 1u /* the only message its queue ever carries */

#define RDMAP_LAYER_RDMA 0x0
#define RDMAP_LAYER_DDP 0x1
#define RDMAP_LAYER_LLP 0x2

/* RDMA layer error types and codes, RFC 5040 figure 9. */
#define RDMAP_ETYPE_LOCAL_CATASTROPHIC 0x0
#define RDMAP_ETYPE_REMOTE_PROTECTION 0x1
#define RDMAP_ETYPE_REMOTE_OPERATION 0x2

#define RDMAP_ECODE_INVALID_STAG 0x00
#define RDMAP_ECODE_BASE_BOUNDS 0x01
#define RDMAP_ECODE_ACCESS_RIGHTS 0x02
#define RDMAP_ECODE_STAG_NOT_ASSOCIATED 0x03
#define RDMAP_ECODE_TO_WRAP 0x04
#define RDMAP_ECODE_VERSION 0x05
#define RDMAP_ECODE_UNEXPECTED_OPCODE 0x06
#define RDMAP_ECODE_CATASTROPHIC_STREAM 0x07
#define RDMAP_ECODE_CATASTROPHIC_GLOBAL 0x08
#define RDMAP_ECODE_CANNOT_INVALIDATE 0x09
#define RDMAP_ECODE_UNSPECIFIED 0xff

/* LLP layer as MPA uses it: RFC 5044 section 8, RFC 6581 section 9.2. */
#define RDMAP_ETYPE_MPA 0x0
#define RDMAP_ECODE_MPA_CLOSED 0x01
#define RDMAP_ECODE_MPA_CRC 0x02
#define RDMAP_ECODE_MPA_MARKER 0x03
#define RDMAP_ECODE_MPA_STARTUP 0x04
#define RDMAP_ECODE_MPA_LOCAL 0x05
#define RDMAP_ECODE_MPA_IRD 0x06
#define RDMAP_ECODE_MPA_RTR 0x07

#endif /* DDPSOCK_RDMAP_FORMAT_H_ */
