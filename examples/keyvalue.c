/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A key-value store whose gets are one-sided Reads of the server's table: the server's program does
 * nothing for them, it sleeps. Puts are messages. One queue serves all clients, and the table is
 * registered through it; where the table lies the clients learn from the private data of start-up.
 *
 *     ddprun --off -- keyvalue serve PORT
 *     ddprun --off -- keyvalue put HOST PORT KEY VALUE [TIMES]
 *     ddprun --off -- keyvalue get HOST PORT KEY [TIMES]
 *
 * A Read may see a slot in the midst of a put. Each slot has a checksum over version, key and
 * value; a get that finds it wrong reads again.
 */
#include <poll.h>

#include "connect.h"

#define SLOTS 1024u

struct slot {
  uint64_t check; /* 0: never used */
  uint64_t version;
  char key[48];
  char value[192];
};
static struct slot table[SLOTS];

static uint64_t check_of(const struct slot* s) {
  return checksum(CHECKSUM_OF_NOTHING, &s->version, sizeof *s - sizeof s->check) | 1;
}

/* Where a key is at the `i`-th try. */
static size_t place_of(const char* key, size_t i) {
  return (checksum(CHECKSUM_OF_NOTHING, key, strlen(key)) + i) % SLOTS;
}

static void store(struct slot* wanted) {
  wanted->key[sizeof wanted->key - 1] = 0; /* it comes from a peer */
  for (size_t i = 0; i < SLOTS; i++) {
    struct slot* s = &table[place_of(wanted->key, i)];
    if (s->check != 0 && strcmp(s->key, wanted->key) != 0) continue;
    wanted->version = s->version + 1;
    wanted->check = check_of(wanted);
    *s = *wanted;
    return;
  }
}

/* A client that is gone by now ends with DDP_ENDED; nothing needs to be said here. */
static void answer(int fd, struct slot* room, const uint64_t* version) {
  const struct iovec in = {room, sizeof *room}, out = {(void*)version, sizeof *version};
  const struct ddp_recv_work receive = {.cookie = (uintptr_t)room, .iov = &in, .iov_count = 1};
  const struct ddp_send_work send = {.iov = &out, .iov_count = 1, .flags = DDP_INLINE | DDP_SILENT};
  if (ddp_post_recv(fd, &receive, 1) != 1)
    free(room);
  else if (version != NULL)
    ddp_post_send(fd, &send, 1);
}

static void handle(const struct ddp_completion* done) {
  struct slot* room = (struct slot*)(uintptr_t)done->cookie;
  if (done->kind == DDP_ENDED) close(done->fd);
  if (done->kind != DDP_RECEIVED) return;
  if (done->status == 0 && done->bytes == sizeof *room) store(room);
  answer(done->fd, room, &room->version);
}

static void serve(const char* port) {
  struct ddp_region region;
  struct ddp_completion done[16];
  const int listener = listen_on(port), queue = ddp_open_cq(4096);
  if (queue < 0 || ddp_reg(queue, table, sizeof table, DDP_REMOTE_READ, &region) != 0 ||
      setsockopt(listener, SOL_DDP, DDP_CQ, &queue, sizeof queue) != 0 ||
      setsockopt(listener, SOL_DDP, DDP_PRIVATE_DATA, &region, sizeof region) != 0)
    die("message mode");
  struct pollfd polled[] = {{.fd = listener, .events = POLLIN},
                            {.fd = ddp_event_fd(queue), .events = POLLIN}};
  while (poll(polled, 2, -1) > 0 || errno == EINTR) {
    if (polled[0].revents != 0) {
      const int fd = accept(listener, NULL, NULL);
      struct slot* room = calloc(1, sizeof *room);
      if (fd >= 0 && room != NULL) answer(fd, room, NULL);
      if (fd >= 0) ddp_establish(fd, 0); /* MPA's Reply may leave; that it stands the queue tells */
    }
    for (int n; (n = ddp_poll(queue, done, 16)) > 0;)
      for (int i = 0; i < n; i++) handle(&done[i]);
  }
  die("poll");
}

static void put(int fd, const char* key, const char* value, int times) {
  uint64_t version = 0;
  for (int i = 0; i < times; i++) {
    struct slot s = {0};
    snprintf(s.key, sizeof s.key, "%s", key);
    snprintf(s.value, sizeof s.value, times > 1 ? "%s-%d" : "%s", value, i + 1);
    post_receive(fd, &version, sizeof version, 0);
    post_send(fd, &s, sizeof s, 0);
    while (next_completion(fd).kind != DDP_RECEIVED) continue;
  }
  printf("version %llu\n", (unsigned long long)version);
}

/* 1 if found. */
static int get(int fd, const char* key, struct slot* s, const struct ddp_region* sink,
               const struct ddp_region* remote, unsigned* torn) {
  for (size_t i = 0; i < SLOTS;) {
    post_read(fd, s, sizeof *s, sink, remote, place_of(key, i) * sizeof *s);
    expect(fd, DDP_READ);
    const int is_whole = s->check == check_of(s);
    if (s->version == 0) return 0; /* never used */
    if (is_whole && strncmp(s->key, key, sizeof s->key) == 0) return 1;
    *torn += !is_whole;
    i += (size_t)is_whole;
  }
  return 0;
}

static int ask(int argc, char** argv) {
  struct ddp_region remote, sink;
  struct slot s;
  socklen_t size = sizeof remote;
  unsigned torn = 0;
  int found = 1;
  const int is_put = strcmp(argv[1], "put") == 0;
  const int times = argc > 5 + is_put ? atoi(argv[5 + is_put]) : 1;
  const int fd = message_socket();
  if (ddp_reg(fd, &s, sizeof s, DDP_LOCAL_WRITE, &sink) != 0) die("ddp_reg");
  connect_to(fd, argv[2], argv[3]);
  if (getsockopt(fd, SOL_DDP, DDP_PRIVATE_DATA, &remote, &size) != 0 || size != sizeof remote)
    die("not a key-value store");
  if (is_put) {
    put(fd, argv[4], argv[5], times);
  } else {
    for (int i = 0; i < times && found; i++) found = get(fd, argv[4], &s, &sink, &remote, &torn);
    if (found) printf("%.192s (version %llu)\n", s.value, (unsigned long long)s.version);
    if (torn != 0) printf("%u Reads met a put and were made again\n", torn);
  }
  close(fd);
  return found ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "serve") == 0) serve(argv[2]);
  if (argc >= 5 && strcmp(argv[1], "get") == 0) return ask(argc, argv);
  if (argc >= 6 && strcmp(argv[1], "put") == 0) return ask(argc, argv);
  fprintf(stderr, "usage: keyvalue serve|put|get ..., as the head of keyvalue.c has it\n");
  return 2;
}
