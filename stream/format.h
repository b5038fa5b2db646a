/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What two ddpsock peers say to each other beyond RDMAP; see doc/stream-protocol.md. Valid C11 and
 * C++.
 *
 * The hello is the private data of the MPA Request and Reply. It delimits itself, because some
 * stacks deliver stray bytes after private data. Bytes beyond HELLO_SIZE are a later version's and
 * ignored.
 */
#ifndef DDPSOCK_STREAM_FORMAT_H_
#define DDPSOCK_STREAM_FORMAT_H_

#define DDPSOCK_HELLO_MAGIC_OFFSET 0
#define DDPSOCK_HELLO_MAGIC_SIZE 4
#define DDPSOCK_HELLO_MAGIC 0x44445073u /* "DDPs" */
#define DDPSOCK_HELLO_VERSION_OFFSET (DDPSOCK_HELLO_MAGIC_OFFSET + DDPSOCK_HELLO_MAGIC_SIZE)
#define DDPSOCK_HELLO_LENGTH_OFFSET (DDPSOCK_HELLO_VERSION_OFFSET + 1) /* of the whole hello */
#define DDPSOCK_HELLO_FEATURES_OFFSET (DDPSOCK_HELLO_LENGTH_OFFSET + 1)
#define DDPSOCK_HELLO_MAX_PAYLOAD_OFFSET (DDPSOCK_HELLO_FEATURES_OFFSET + 2)
#define DDPSOCK_HELLO_CREDITS_OFFSET (DDPSOCK_HELLO_MAX_PAYLOAD_OFFSET + 4)
#define DDPSOCK_HELLO_HOST_OFFSET (DDPSOCK_HELLO_CREDITS_OFFSET + 4)
#define DDPSOCK_HELLO_HOST_SIZE 16
#define DDPSOCK_HELLO_SIZE (DDPSOCK_HELLO_HOST_OFFSET + DDPSOCK_HELLO_HOST_SIZE)

/* Optional, behind the hello and within its length: the initiator offers memory on this host. */
#define DDPSOCK_OFFER_PID_OFFSET DDPSOCK_HELLO_SIZE
#define DDPSOCK_OFFER_FD_OFFSET (DDPSOCK_OFFER_PID_OFFSET + 4)
#define DDPSOCK_OFFER_SECRET_OFFSET (DDPSOCK_OFFER_FD_OFFSET + 4)
#define DDPSOCK_OFFER_SECRET_SIZE 16
#define DDPSOCK_HELLO_MAX_SIZE (DDPSOCK_OFFER_SECRET_OFFSET + DDPSOCK_OFFER_SECRET_SIZE)

#define DDPSOCK_HELLO_VERSION 1

/* Feature bits. A peer uses one only if both sides offer it. */
#define DDPSOCK_FEATURE_STREAM 0x0001u    /* Sends carry a byte stream */
#define DDPSOCK_FEATURE_MEMORY 0x0002u    /* an offer of memory follows the hello */
#define DDPSOCK_FEATURE_JOINS 0x0004u     /* joins memory that the other side offers */
#define DDPSOCK_FEATURE_ONE_SIDED 0x0008u /* takes FPDUs of a queue pair between the chunks */

#define DDPSOCK_FEATURE_RAW 0x0010u   /* returns to plain TCP when asked to */
#define DDPSOCK_FEATURE_HURRY 0x0020u /* of one frame: its sender waits for the other's */
#define DDPSOCK_FEATURE_LATER 0x0040u /* takes RAW_OFFER */

/* With FEATURE_RAW in both hellos an RDMAP Send with Solicited Event on queue 0 is not stream: it
 * begins with these words. */
#define DDPSOCK_RAW_KIND_OFFSET 0
#define DDPSOCK_RAW_NUMBER_OFFSET 4
#define DDPSOCK_RAW_SIZE 8
/* The number is the MSN of the first FPDU not seen; behind it the bytes that are to come again. */
#define DDPSOCK_RAW_ASK 0x5241573fu /* "RAW?" */
/* What follows is plain; the number says how many bytes of it have come before. */
#define DDPSOCK_RAW_MARK 0x52415721u /* "RAW!" */
#define DDPSOCK_RAW_MAX_RETURNED 49152u
/* The initiator offers memory that its Request did not. The number is the process; behind it
 * descriptor and secret, as in the hello. */
#define DDPSOCK_RAW_OFFER 0x4d454d21u /* "MEM!" */
#define DDPSOCK_RAW_OFFER_SIZE (4 + DDPSOCK_OFFER_SECRET_SIZE)

/* With FEATURE_ONE_SIDED: Reads and atomics that a side takes at a time (IRD, and so the other's
 * ORD). */
#define DDPSOCK_ONE_SIDED_DEPTH 16u

/* Credits: 0 means that TCP's window is enough and Sends are never refused for want of a receive.
 */
#define DDPSOCK_CREDITS_UNLIMITED 0u

#endif /* DDPSOCK_STREAM_FORMAT_H_ */
