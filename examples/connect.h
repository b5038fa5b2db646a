/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the examples in message mode share: sockets, and one completion after the other. */
#ifndef DDPSOCK_EXAMPLES_CONNECT_H_
#define DDPSOCK_EXAMPLES_CONNECT_H_

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ddpsock/ddpsock.h"

#define PATIENCE_MS 30000

static inline void die(const char* what) {
  perror(what);
  exit(1);
}

/* FNV-1a over `bytes`, going on from `sum`. */
#define CHECKSUM_OF_NOTHING 0xcbf29ce484222325
static inline uint64_t checksum(uint64_t sum, const void* bytes, size_t size) {
  const unsigned char* p = bytes;
  for (size_t i = 0; i < size; i++) sum = (sum ^ p[i]) * 0x100000001b3;
  return sum;
}

/* A TCP socket in message mode. Only the library knows the mode: without it the kernel says no. */
static inline int message_socket(void) {
  const int mode = DDP_MODE_MESSAGE;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  if (setsockopt(fd, SOL_DDP, DDP_MODE, &mode, sizeof mode) != 0) {
    fprintf(stderr, "This program needs ddpsock: start it by \"ddprun --off -- PROGRAM\".\n");
    exit(2);
  }
  return fd;
}

static inline struct sockaddr_in address_of(const char* host, const char* port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
    fprintf(stderr, "%s is not an IPv4 address\n", host);
    exit(2);
  }
  return address;
}

/* Listens on 127.0.0.1 and says where; port 0 lets the kernel choose. */
static inline int listen_on(const char* port) {
  struct sockaddr_in address = address_of("127.0.0.1", port);
  socklen_t size = sizeof address;
  const int fd = message_socket();
  if (bind(fd, (struct sockaddr*)&address, size) != 0) die("bind");
  if (listen(fd, 16) != 0) die("listen");
  if (getsockname(fd, (struct sockaddr*)&address, &size) != 0) die("getsockname");
  printf("listening on port %d\n", ntohs(address.sin_port));
  fflush(stdout);
  return fd;
}

static inline void connect_to(int fd, const char* host, const char* port) {
  const struct sockaddr_in address = address_of(host, port);
  if (connect(fd, (const struct sockaddr*)&address, sizeof address) != 0) die("connect");
}

static inline void post_receive(int fd, void* room, size_t size, uint64_t cookie) {
  const struct iovec iov = {room, size};
  const struct ddp_recv_work work = {.cookie = cookie, .iov = &iov, .iov_count = 1};
  if (ddp_post_recv(fd, &work, 1) != 1) die("ddp_post_recv");
}

static inline void post_send(int fd, const void* bytes, size_t size, uint64_t cookie) {
  const struct iovec iov = {(void*)bytes, size};
  const struct ddp_send_work work = {.cookie = cookie, .iov = &iov, .iov_count = size != 0};
  if (ddp_post_send(fd, &work, 1) != 1) die("ddp_post_send");
}

/* Into memory of ours, which is the region `sink`, from `offset` on in the peer's region `from`. */
static inline void post_read(int fd, void* room, uint32_t size, const struct ddp_region* sink,
                             const struct ddp_region* from, uint64_t offset) {
  const struct ddp_read_work work = {.address = room,
                                     .length = size,
                                     .stag = sink->stag,
                                     .remote_to = from->to + offset,
                                     .remote_stag = from->stag};
  if (ddp_post_read(fd, &work, 1) != 1) die("ddp_post_read");
}

/* To be passed over: that it stands, and receives that nothing came for; DDP_ENDED follows those.
 */
static inline int is_empty(const struct ddp_completion* done) {
  return done->kind == DDP_ESTABLISHED || (done->kind == DDP_RECEIVED && done->status == ECANCELED);
}

/* The next completion of a connection or a queue; whatever failed ends the program, in words. */
static inline struct ddp_completion next_completion(int fd) {
  struct ddp_completion done;
  int n;
  do n = ddp_wait(fd, &done, 1, PATIENCE_MS);
  while ((n < 0 && errno == EINTR) || (n == 1 && is_empty(&done)));
  if (n < 0) die("ddp_wait");
  if (n == 0) {
    fprintf(stderr, "the peer has been silent for %d s\n", PATIENCE_MS / 1000);
    exit(1);
  }
  if (done.status != 0) {
    fprintf(stderr, "the connection failed: %s\n", ddp_strerror(&done));
    exit(1);
  }
  return done;
}

/* As above; anything else than this kind is against the examples' protocols. */
static inline struct ddp_completion expect(int fd, enum ddp_kind kind) {
  const struct ddp_completion done = next_completion(fd);
  if (done.kind != (uint32_t)kind) {
    fprintf(stderr, "unexpected: %s\n", ddp_strerror(&done));
    exit(1);
  }
  return done;
}

/* To lose nothing: no new requests, wait until the peer has ended too, close. A peer that was first
 * has ended the connection already. */
static inline void finish(int fd) {
  if (shutdown(fd, SHUT_WR) != 0 && errno != ENOTCONN) die("shutdown");
  while (next_completion(fd).kind != DDP_ENDED) continue;
  close(fd);
}

#endif /* DDPSOCK_EXAMPLES_CONNECT_H_ */
