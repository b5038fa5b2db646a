/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ddpsock: RDMA semantics for ordinary sockets. Public interface, C11 and C++.
 *
 * All options are at level SOL_DDP and take the value types named beside them. Without the library
 * loaded the kernel answers ENOPROTOOPT to each of them, so that a program can simply fall back.
 */
#ifndef DDPSOCK_DDPSOCK_H_
#define DDPSOCK_DDPSOCK_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Outside the range of protocol numbers, so that no kernel will ever take it for one of its own. */
#define SOL_DDP 0x44445000

/*
 * DDP_MODE (struct ddp_mode or plain int; get returns int): puts a socket in DDPMODE.
 *   unconnected: decides for the connection to be made; listening: for those to be accepted;
 *   connected: upgrades it; both sides must be quiescent and one must be the initiator.
 *   Errors: EINVAL (unknown mode or role), EOPNOTSUPP (not a TCP socket, or one that is asked for
 *   time stamps: SO_TIMESTAMP and its like), EALREADY (is in DDPMODE already), EISCONN
 *   (DDP_MODE_OFF on a connection in DDPMODE), EDESTADDRREQ (connected, role auto, and it is not
 *   known which side connected), ENOMEM, EMFILE (message mode: no memory or descriptors for it).
 *   On an upgraded socket whose peer sends something that is not MPA, calls fail with EPROTO and
 *   the bytes stay in the socket: DDP_MODE_OFF then gives it back as plain TCP.
 */
#define DDP_MODE 1
#define DDP_MODE_OFF 0
#define DDP_MODE_STREAM 1  /* byte stream, exactly TCP's semantics */
#define DDP_MODE_MESSAGE 2 /* pure RDMAP with message boundaries: the second half of this file */

/* DDP_ENGINE (char[16], NUL-terminated; get: the engine that serves now, "user" or "shm"). Set
 * before the connection is made: "auto" (the default) and "shm" (shared memory where both ends are
 * the same user's on this host: a stream from the first bytes that both have exchanged on, message
 * mode from its start; the user engine otherwise), "user". In message mode both ends must have been
 * in it before listen() and connect(): an upgraded connection is over TCP, and so is one with
 * DDP_MARKERS. EINVAL for an unknown name, EISCONN afterwards. */
#define DDP_ENGINE 2

/* DDP_STATUS (struct ddp_status; get only): what this connection is and why. ENOTCONN before. */
#define DDP_STATUS 3

/* DDP_CRC (int, default 1): 0 offers to go without CRC; it is off only if both sides offer that
 * (RFC 5044 section 7.1). Set before the connection is made. */
#define DDP_CRC 4

/*
 * For sockets in message mode only (EOPNOTSUPP otherwise). What a listening socket has, the
 * connections get that it accepts from then on. Set before the first ddp_ call and before
 * connect(): EBUSY afterwards.
 *
 * DDP_DEPTHS (struct ddp_depths): the sizes of its queues. EINVAL beyond the limits named there.
 *
 * DDP_PRIVATE_DATA (up to 508 bytes): travels in the MPA Request or Reply (RFC 5044 section 7.1)
 * for the peer's program; EINVAL when longer. Of an accepted socket it may be set until that
 * starts ("Accepting", below). get: the peer's; EAGAIN while none has come.
 *
 * DDP_MARKERS (int, default 0): 1 asks the peer to send MPA markers (RFC 5044 section 4.3). Some
 * peers refuse such a connection. Markers that the peer asks for are sent all the same.
 *
 * DDP_PROGRESS (int): who moves the connection's bytes. DDP_PROGRESS_THREAD, the default: the calls
 * made on it, and otherwise one thread of the library, so that the peer's one-sided operations
 * proceed while the program computes. DDP_PROGRESS_CALLER: only ddp_post_*, ddp_poll, ddp_wait and
 * ddp_establish on it; no thread is made. Poll the socket itself (POLLIN, and POLLOUT after a
 * ddp_poll that found nothing although sends are under way), then call ddp_poll.
 *
 * DDP_CQ (int): the completion queue to use, from ddp_open_cq(). EINVAL if it is none, or not that
 * of its DDP_SRQ.
 *
 * DDP_SRQ (int): the shared receive queue to take receives from, from ddp_open_srq(); its
 * completion queue becomes DDP_CQ. EINVAL if it is none.
 *
 * DDP_SPIN_US (int, default 0, at any time): how long ddp_wait looks again and again before it
 * sleeps. Also of a descriptor from ddp_open_cq().
 *
 * DDP_SRQ_LIMIT (int, set only, at any time): of a descriptor from ddp_open_srq() alone, see there.
 */
#define DDP_DEPTHS 5
#define DDP_PRIVATE_DATA 6
#define DDP_MARKERS 7
#define DDP_PROGRESS 8
#define DDP_CQ 9
#define DDP_SPIN_US 10
#define DDP_SRQ 11
#define DDP_SRQ_LIMIT 12

#define DDP_PROGRESS_THREAD 0
#define DDP_PROGRESS_CALLER 1

struct ddp_depths {
  uint32_t send; /* requests posted and not completed, 1 to 16384; default 64 */
  uint32_t
      receive;  /* receives posted and not completed, 1 to 16384; default 64; none with DDP_SRQ */
  uint32_t ird; /* Reads and atomics that the peer may have outstanding here, 0 to 128; 16 */
  uint32_t ord; /* ... and we there; default 16 */
};

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
  uint32_t has_crc;       /* as agreed; in shared memory there is none */
  uint32_t peer_features; /* from the peer's hello, 0 if it sent none */
  uint32_t max_payload;   /* stream bytes in one FPDU sent; message mode: bytes of a Send */
  /* Of the stream; message mode: of Sends, Immediates, Writes and the answers to Reads. */
  uint64_t bytes_sent, bytes_received;
  uint64_t fpdus_sent, fpdus_received; /* of every kind */
  uint64_t crcs_checked;               /* message mode in shared memory: 0, there are none */
  char memory[80];                     /* why it is, or is not, in shared memory, in words */
  /* Message mode, where peer_features stays 0; and, but for has_markers, streams with one-sided
   * operations. */
  char progress[16];    /* the library's thread, by "io_uring" or "epoll"; or "caller" */
  uint32_t ird, ord;    /* as agreed with the peer */
  uint32_t has_markers; /* bit 0: we send markers, bit 1: the peer does */
};

/*
 * ---------------------------------------------------------------------------------------------
 * One-sided operations on byte streams: on a connection in DDP_MODE_STREAM whose peer has this
 * library, too, ddp_reg, ddp_dereg, ddp_post_write, ddp_post_read, ddp_post_atomic, ddp_poll,
 * ddp_wait, ddp_event_fd and ddp_establish work as in message mode below, beside read, write, poll
 * and all else, which keep TCP's semantics. The first of these calls begins it; regions are told to
 * the peer by the stream itself. What differs:
 *   - Bytes written after a ddp_post_write are read after the Write's bytes are in place. Not so
 *     behind a request that waits: for DDP_FENCE, or for one of 16 outstanding Reads and atomics.
 *   - ENOTCONN: the peer's first bytes have not come, so that it is not known what it can; read
 *     them, or ddp_establish, which waits for them. EOPNOTSUPP: it cannot, or plain TCP.
 *   - ddp_post_send and ddp_post_recv: EOPNOTSUPP. The options of message mode likewise: 64
 *     requests are posted at a time, 16 Reads and atomics outstanding, and the thread works.
 *   - DDP_ENDED comes with the peer's end of the stream (status 0), of which the other direction
 *     goes on, or with whatever ended the connection. A Terminate ends the stream, too: read fails
 *     with EPROTO (ours) or ECONNRESET (the peer's).
 *   - Reads and atomics are answered past stream bytes that nobody reads, up to 1.1 MB of them. The
 *     descriptor stays truthful, but that poll may call it readable when only a request has come.
 *   - The connection leaves shared memory for good.
 *   - It may not be read or written by signal handlers.
 *   - After fork() a child may read and write; requests and registrations stay the parent's, who
 *     must live for what the child reads to come.
 * ---------------------------------------------------------------------------------------------
 * Message mode: messages with boundaries, registered memory, one-sided operations
 * (RFC 5040 RDMAP, RFC 5041 DDP, RFC 7306 atomics and Immediate Data). Nothing but RDMAP is on the
 * wire, so that the peer may be any iWARP implementation. Two programs of one user on one host that
 * both have this library meet in shared memory after MPA start-up, unless DDP_ENGINE says
 * otherwise; what "TCP" does below is then the memory's part, and all that is said here holds.
 *
 *     int mode = DDP_MODE_MESSAGE;
 *     if (setsockopt(fd, SOL_DDP, DDP_MODE, &mode, sizeof mode) != 0)   ... plain TCP instead
 *     ddp_post_recv(fd, receives, n);            // before the peer can send
 *     connect(fd, ...);                          // TCP and MPA start-up
 *     ddp_post_send(fd, sends, n);
 *     ddp_wait(fd, completions, room, -1);
 *
 * Connecting. connect() on a blocking socket returns when MPA start-up has ended; a non-blocking
 * one goes on in the background: ddp_establish() or the completion DDP_ESTABLISHED tells. connect()
 * fails as TCP's, and with ECONNREFUSED (the peer's program said no), EPROTO (it does not speak
 * MPA, or cannot agree), ECONNRESET or ETIMEDOUT; make a new socket then. A peer that refuses or
 * drops the Request of revision 2 of MPA (RFC 6581) is called once more, with revision 1 (RFC
 * 5044), blocking or not: a new TCP connection of the same socket, whose descriptor, options and
 * places in epoll sets stay. Its local port becomes another, unless the program has bound it.
 * DDP_STATUS tells the revision; with 1 no IRD and ORD are agreed, and ours are what DDP_DEPTHS
 * says.
 *
 * Accepting. accept() on a listening socket in message mode returns as soon as TCP is established,
 * whatever the peer then does. The MPA Reply leaves with the program's first call on the new socket
 * that is not ddp_reg, ddp_dereg, ddp_alloc, ddp_free, ddp_take_back or ddp_post_recv: post all
 * receives first, for a Send that finds none ends the connection. Whoever waits on a shared
 * completion queue, or posts nothing but receives, says so by ddp_establish(fd, 0), whose EAGAIN
 * ("not yet") it passes over. A peer that sends no Request within 10 s, or is not answered within
 * 30 s, has failed. An upgraded connection (DDP_MODE on a connected socket) starts in the same way.
 *
 * Ending. shutdown(fd, SHUT_WR): no new requests; what is posted is done and the peer's Reads are
 * answered, then a FIN; receiving goes on up to the peer's. SHUT_RDWR: both directions at once,
 * what has not completed is cut. ENOTCONN: it does not stand yet, or has ended already. close() of
 * the last descriptor: at once; what TCP has taken over is still delivered, what has not completed
 * may be cut. When close() returns the library touches none of the connection's memory any more,
 * its registrations are gone, and none of its completions comes any more. To lose nothing: wait for
 * the completions of what was posted, shut down, wait for DDP_ENDED, close.
 *
 * Memory. Buffers named in requests belong to the library from the accepted post to the completion:
 * do not change, read (receives) or free them. The arrays of requests and the iovecs themselves are
 * copied. Local memory need not be registered, except for what a Read fills and what the peer is to
 * reach.
 *
 * Order (RFC 5040 section 5.5). Sends, Writes and Immediates arrive in posting order; a Send posted
 * after a Write is delivered after the Write's bytes are there. A Read may be overtaken by later
 * requests; DDP_FENCE makes a request wait for all earlier Reads and atomics. Completions of one
 * queue (send or receive) of one connection come in posting order, each exactly once. A completed
 * Send or Write has left for TCP: that the peer has it only its own answer tells.
 *
 * Threads. All calls may be made by any thread at any time, but not by signal handlers; close() of
 * a socket in message mode neither. Blocking or non-blocking makes no difference but to connect().
 * A post waits for no other thread; with DDP_PROGRESS_CALLER, as the first call on a connection, or
 * of a Read or atomic on a byte stream it may, briefly, for one that is moving bytes. ddp_wait and
 * ddp_establish are cancellation points (pthread_cancel) while they sleep; the other calls are
 * none.
 *
 * The descriptor. It stays the kernel's TCP socket. read, write, send, recv, sendfile and their
 * like fail with EOPNOTSUPP; poll and epoll on it tell of the wire's bytes, not of messages: use
 * ddp_event_fd(). dup() makes another name of the same connection. It is set close-on-exec, and
 * must stay so. After fork() the connection stays the parent's: in the child the calls fail with
 * EOPNOTSUPP and close() closes the child's descriptor only.
 *
 * Errors. Every call returns -1 and sets errno. All of them: EBADF (not open, or closed meanwhile),
 * EOPNOTSUPP (neither of the modes, or inherited over fork: make a connection of this process's
 * own), EFAULT (a null pointer to arrays or results), ENOMEM. The others are named with the calls.
 *
 * Without the library. The calls are declared weak: a position-independent program (what compilers
 * make unless told otherwise) links without it and finds them when it is preloaded (ddprun, or
 * LD_PRELOAD). Where it is not, setsockopt(DDP_MODE) fails and the calls, which are null then, must
 * not be made; ddp_is_loaded() tells, too. A program linked with -no-pie must be linked with
 * -lddpsock.
 */
#if defined(__GNUC__)
#define DDP_CALL __attribute__((weak))
#else
#define DDP_CALL
#endif

/* Rights of registered memory (RFC 5040 section 8). The program itself may do everything. */
#define DDP_LOCAL_WRITE 0x02u   /* a Read of ours may fill it */
#define DDP_REMOTE_READ 0x04u   /* the peer may read it */
#define DDP_REMOTE_WRITE 0x08u  /* the peer may write it; a Read of ours may fill it, too */
#define DDP_REMOTE_ATOMIC 0x10u /* the peer's atomics may change it */

/* What a peer must be told to reach the memory, and what names a Read's sink. Host byte order. */
struct ddp_region {
  uint32_t stag;   /* its name, in part random: RFC 5040 section 2.1, RFC 5042 section 6.2.1 */
  uint32_t rights; /* DDP_LOCAL_WRITE ... */
  uint64_t to;     /* tagged offset of its first byte: its address here */
  uint64_t length; /* bytes */
};

/*
 * Registers `length` bytes at `address`, which stay the program's and must stay mapped until
 * ddp_dereg() has succeeded or close() has returned. Through a connection (also before it is
 * connected): that peer alone may reach the memory. Through a completion queue (ddp_open_cq): the
 * peers of all connections that use the queue; registered until ddp_dereg() or until the queue and
 * all its connections are closed.
 *
 * A peer in shared memory (DDP_ENGINE) that the kernel lets look into this process does its Reads
 * of up to 4 MB by itself while this process does not look for completions, whether it runs or not,
 * once it has taken all that was sent before. Of what is posted here and not complete a Read may be
 * ahead then, this end counts and captures none of it, and a page that is not in memory is waited
 * for in the peer's call. One that ddp_dereg() overtakes fails at the peer, which may have copied.
 *   EINVAL   no bytes, no or unknown rights, or address + length overflows
 *   ENOSPC   8192 regions are registered in this process: deregister some
 */
DDP_CALL int ddp_reg(int fd, void* address, size_t length, unsigned rights,
                     struct ddp_region* region);

/*
 * Ends a registration made through the same descriptor (or a duplicate). The STag is refused to the
 * peer from now on: it who uses it ends the connection (DDP_ENDED, a Terminate of ours). After
 * success the library never touches the memory again.
 *   EINVAL   no such registration here, or one by ddp_alloc()
 *   EBUSY    the peer's Read of it, or a Read of ours into it, is under way: that is finished, and
 *            the STag refused to new work already. Call again after more completions, or close the
 *            connection
 */
DDP_CALL int ddp_dereg(int fd, uint32_t stag);

/*
 * As ddp_reg(), of memory that is made for it: `length` zeroed bytes at (void*)region->to, on pages
 * of their own, which count against this process from here on.
 *
 * A peer in shared memory (DDP_ENGINE) does its Writes, Reads and atomics there by itself where it
 * can: as this process does by a memory access, in the call that posts them, whether this process
 * runs or not. It can where this process has taken all that it sent before, in requests of up to
 * 4 MB, after its first, in up to 64 regions at a time. All else goes as with ddp_reg(), and for
 * other peers everything does; what comes of it is the same, but for what this end counts
 * (DDP_STATUS) and captures. A Read of 8 bytes that are aligned at both ends is whole. The peer's
 * first request to a region maps it there, which takes system calls.
 *
 * A forked child does not have the memory. close() of the last descriptor frees it, too. A peer may
 * keep its pages in use for a while after their end here. One that means harm, of the same user and
 * with DDP_REMOTE_WRITE or _ATOMIC, may write to them for as long as they are this region's, and a
 * copy that it is in the middle of may go on when it has been invalidated or its connection closed;
 * after ddp_free() or ddp_take_back() nothing it does is seen here.
 *
 *   EINVAL   no bytes, no or unknown rights
 *   ENOSPC   as ddp_reg()
 *   ENOMEM   no memory for all of it, or more than this machine has
 */
DDP_CALL int ddp_alloc(int fd, size_t length, unsigned rights, struct ddp_region* region);

/*
 * Ends the registration and the memory.
 *   EINVAL   no such registration here, or one by ddp_reg()
 *   EBUSY    as ddp_dereg(); the memory is still there
 */
DDP_CALL int ddp_free(int fd, uint32_t stag);

/*
 * Ends the registration alone: the bytes stay where they are, on other pages, which no peer has,
 * and which are the program's, to give back by munmap(address, length). Nothing else may use the
 * memory meanwhile, neither a thread nor a system call nor a peer: what they write may be lost.
 *   EINVAL, EBUSY   as ddp_free()
 *   ENOMEM          no memory for other pages: nothing happened
 *   ENOSPC          the process has too many mappings: the memory is lost
 */
DDP_CALL int ddp_take_back(int fd, uint32_t stag);

/* Flags of requests. */
#define DDP_SILENT 0x01u    /* no completion unless it fails */
#define DDP_FENCE 0x02u     /* start when all earlier Reads and atomics have completed */
#define DDP_INLINE 0x04u    /* Send, Write: copy the bytes now, at most 64; the buffers stay free */
#define DDP_SOLICITED 0x08u /* Send: the peer's completion has DDP_SOLICITED set */
#define DDP_INVALIDATE 0x10u /* Send: invalidates the peer's STag `invalidate` */
/* Send: 8 bytes `immediate` and nothing else (RFC 7306 section 6). It takes a receive of the peer's
 * and leaves its buffers alone. */
#define DDP_IMMEDIATE 0x20u
#define DDP_MORE 0x40u /* last of a post: it may wait for the next post, ddp_poll or ddp_wait */

#define DDP_MAX_SLICES 8u /* iovecs of one request that are not empty */
#define DDP_MAX_INLINE 64u

struct ddp_send_work {
  uint64_t cookie; /* comes back in the completion */
  const struct iovec* iov;
  uint32_t iov_count;  /* 0: a message without bytes */
  uint32_t flags;      /* DDP_* above */
  uint64_t immediate;  /* with DDP_IMMEDIATE, whose iov_count is 0 */
  uint32_t invalidate; /* with DDP_INVALIDATE: STag of the peer's */
  uint32_t reserved;   /* 0 */
};

struct ddp_recv_work {
  uint64_t cookie;
  const struct iovec* iov; /* filled in order; together at least as long as the message to come */
  uint32_t iov_count;
  uint32_t reserved; /* 0 */
};

struct ddp_write_work {
  uint64_t cookie;
  const struct iovec* iov;
  uint32_t iov_count;
  uint32_t flags;
  uint64_t remote_to; /* where in the peer's memory: its region's `to` plus an offset */
  uint32_t remote_stag;
  uint32_t reserved; /* 0 */
};

struct ddp_read_work {
  uint64_t cookie;
  void* address; /* where to: inside the region `stag`, which has DDP_LOCAL_WRITE or REMOTE_WRITE */
  uint32_t length; /* bytes */
  uint32_t stag;   /* ours */
  uint64_t remote_to;
  uint32_t remote_stag;
  uint32_t flags;
};

enum ddp_atomic {
  DDP_FETCH_ADD = 0,    /* adds `operand` */
  DDP_SWAP = 1,         /* stores `operand` */
  DDP_COMPARE_SWAP = 2, /* stores `operand` if it finds `compare` */
};

/* On 8 bytes at the peer, aligned to 8, in its byte order, and atomic for its own threads, too;
 * `value` of the completion is what was found (RFC 7306 section 5). */
struct ddp_atomic_work {
  uint64_t cookie;
  uint32_t operation; /* enum ddp_atomic */
  uint32_t flags;
  uint64_t operand;
  uint64_t compare;
  uint64_t remote_to;
  uint32_t remote_stag;
  uint32_t reserved; /* 0 */
};

/*
 * Posting `count` requests, in order. Returns how many were accepted, from the first on: all, or
 * fewer with errno telling why not the next; -1 if not even the first. What was accepted is sent in
 * this call, together and as far as TCP takes it; the rest follows by itself, and so do Reads and
 * atomics beyond what the peer's IRD and our ord allow at once, and what was posted behind them.
 * Nothing waits, and nothing is allocated once connected, but for what ddp_alloc() says.
 *   EAGAIN    the queue, or the completion queue, is full: ddp_poll, then post the rest
 *   ENOTCONN  sends: not established yet: ddp_establish first. Receives are accepted before
 *   EPIPE     the connection has ended or is ending: DDP_ENDED says why. Make a new one
 *   EINVAL    unknown flags or operation, flags that exclude each other, a reserved field set;
 *             receives: the connection has a DDP_SRQ: post them there
 *   E2BIG     more than DDP_MAX_SLICES iovecs
 *   EMSGSIZE  4 GB or more, or DDP_INLINE with more than DDP_MAX_INLINE bytes
 *   EACCES    Read: the sink is not inside our region `stag`, or that has neither right
 *   ENOTSUP   Read, atomic: the peer takes none (its IRD, RFC 6581, or our ord is 0)
 * A message for which the peer has posted no receive, or a shorter one, ends the connection with
 * its Terminate; so does remote memory that is not registered, out of bounds, or without the right.
 */
DDP_CALL int ddp_post_send(int fd, const struct ddp_send_work* work, unsigned count);
DDP_CALL int ddp_post_recv(int fd, const struct ddp_recv_work* work, unsigned count);
DDP_CALL int ddp_post_write(int fd, const struct ddp_write_work* work, unsigned count);
DDP_CALL int ddp_post_read(int fd, const struct ddp_read_work* work, unsigned count);
DDP_CALL int ddp_post_atomic(int fd, const struct ddp_atomic_work* work, unsigned count);

/* What a completion is of. */
enum ddp_kind {
  DDP_SENT = 0,
  DDP_RECEIVED = 1,
  DDP_WRITTEN = 2,
  DDP_READ = 3,
  DDP_ATOMIC_DONE = 4,
  DDP_ESTABLISHED = 5, /* once, unless connect() or ddp_establish() has told it */
  DDP_ENDED = 6,       /* once, the last of a connection that was begun; status says how */
};

struct ddp_completion {
  uint64_t cookie; /* of the request; 0 for ESTABLISHED and ENDED */
  int fd;          /* the descriptor that was put in message mode, or that accept() returned; -1: of
                      a DDP_SRQ's receive, whose connection was closed */
  uint32_t kind;   /* enum ddp_kind */
  /*
   * 0, or an errno value. Requests: ECANCELED (the connection ended before this was done; the peer
   * may have seen it or not). DDP_ENDED: 0 (closed between messages, nothing cut), EREMOTEIO (a
   * Terminate of the peer's: `terminate`), EPROTO (a Terminate of ours, or a start-up that failed),
   * ECONNRESET (lost, or closed with work outstanding), ECONNREFUSED, ETIMEDOUT (start-up).
   */
  int status;
  uint32_t flags; /* RECEIVED: DDP_SOLICITED, DDP_IMMEDIATE, DDP_INVALIDATE */
  uint64_t bytes; /* RECEIVED: of the message; others: as asked for */
  uint64_t value; /* the immediate, or what an atomic found */
  uint32_t stag;  /* with DDP_INVALIDATE: our STag that the peer has invalidated */
  /* The Terminate that cut it: 1 << 24 | layer << 16 | error type << 8 | code (RFC 5040 section
   * 4.8), in words by ddp_strerror(); or 0. */
  uint32_t terminate;
};

/*
 * Takes up to `room` completions, oldest first; looks at the connection once if there are none.
 * Never waits. `fd`: a connection, or a completion queue. Returns how many, 0 if none.
 */
DDP_CALL int ddp_poll(int fd, struct ddp_completion* completions, unsigned room);

/*
 * The same, but waits for at least one: `timeout_ms` milliseconds, -1: for ever. Returns 0 when the
 * time is over. EINTR: a signal handler ran. EINVAL: no room. EPIPE: a connection with a queue of
 * its own has ended and everything was taken: nothing will come any more.
 */
DDP_CALL int ddp_wait(int fd, struct ddp_completion* completions, unsigned room, int timeout_ms);

/*
 * Waits until MPA start-up has ended: 0 if the connection stands. EAGAIN: not within `timeout_ms`
 * (-1: start-up's own limits). ENOTCONN: it was never connected. Otherwise as connect(), or EPIPE
 * when it has ended already.
 */
DDP_CALL int ddp_establish(int fd, int timeout_ms);

/*
 * A descriptor for the program's own poll or epoll: readable when a completion has come since a
 * ddp_poll returned 0. So: when it is readable, ddp_poll until it returns 0. Never read, write or
 * close it; it goes with the connection or the completion queue. Not with DDP_PROGRESS_CALLER
 * (EINVAL: nothing would happen while the program sleeps).
 */
DDP_CALL int ddp_event_fd(int fd);

/*
 * A completion queue that several connections share (DDP_CQ), as a descriptor: for ddp_poll,
 * ddp_wait, ddp_event_fd, ddp_reg, ddp_dereg, DDP_SPIN_US, dup() and close(). `depth` completions,
 * 1 to 65536: every posted request keeps a place in it, and a post that finds none is refused with
 * EAGAIN, so that it never overflows. Closed, it lives on unseen for the connections that use it.
 * EINVAL, EMFILE, ENOSPC (63 queues are open in this process).
 */
DDP_CALL int ddp_open_cq(unsigned depth);

/*
 * A shared receive queue, as a descriptor: receives for whatever comes next on any of the
 * connections that use it (DDP_SRQ), so that many connections need buffers for what is under way,
 * not for what each could send. For ddp_post_recv, DDP_SRQ_LIMIT, dup() and close(). `depth`
 * receives posted and not taken, 1 to 65536. `cq`, from ddp_open_cq(), is where they complete, and
 * the completion queue of all connections that use it; each posted receive keeps a place there.
 *
 * A message takes the oldest receive when its first bytes come. So completions of different
 * connections need not come in posting order; the cookie tells the receive and `fd` the connection.
 * A message that finds none ends its connection, and only that, with our Terminate (DDP_ENDED,
 * EPROTO): keep more posted than may come before the program posts again. DDP_SRQ_LIMIT helps with
 * that: the descriptor becomes readable once fewer receives than that are left (at once, if so it
 * is), and unreadable, and armed anew, when the option is set again; 0: never.
 *
 * Each receive completes exactly once, whatever becomes of its connection: ECANCELED when the
 * connection ended inside its message; ECANCELED and fd -1 when the program closed the connection
 * after it was taken and before its completion was. What nobody has taken stays posted.
 *
 * close() of the last descriptor gives back, without completions, what nobody has taken; receives
 * taken complete as ever. Connections that use it go on, but for messages that then find none.
 *
 * ddp_post_recv here fails with EAGAIN, EINVAL, E2BIG and EMSGSIZE as on a connection. This fails
 * with EINVAL (`cq` is none, or the depth), EMFILE.
 */
DDP_CALL int ddp_open_srq(int cq, unsigned depth);

/* What happened, in words: static text, of any thread, never null. */
DDP_CALL const char* ddp_strerror(const struct ddp_completion* completion);

static inline int ddp_is_loaded(void) {
  return ddp_poll != NULL;
}

#ifdef __cplusplus
}
#endif

#endif /* DDPSOCK_DDPSOCK_H_ */
