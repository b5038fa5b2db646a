/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Many workers count the letters of their files into one histogram, which lies in the server's
 * memory: by atomics, so that nobody locks and the server computes nothing. The server has receives
 * for the news of whichever worker comes next, not a set for each.
 *
 *     histogram serve PORT WORKERS        histogram HOST PORT FILE
 *
 * The Reply of each connection carries where the board is (DDP_PRIVATE_DATA). A worker takes a line
 * of it by fetch-add, writes its name there, adds its counts, and tells so by an Immediate, which a
 * fence keeps behind the atomics. The last answer of the server is the sign that all have; then the
 * worker reads the whole histogram.
 */
#include "connect.h"

#define WORKERS_MAX 64
#define LETTERS 26

struct board {
  uint64_t lines; /* taken */
  uint64_t count[LETTERS];
  char name[WORKERS_MAX][32];
};

static void print_histogram(const struct board* board) {
  for (int i = 0; i < LETTERS; i++)
    if (board->count[i] != 0) printf("%c %llu\n", 'a' + i, (unsigned long long)board->count[i]);
}

static void serve(const char* port, int workers) {
  static struct board board;
  struct ddp_region region;
  int connection[WORKERS_MAX];
  const int listening = listen_on(port);
  const int cq = ddp_open_cq(WORKERS_MAX * 80), srq = ddp_open_srq(cq, WORKERS_MAX);
  if (cq < 0 || srq < 0) die("ddp_open_srq");
  if (ddp_reg(cq, &board, sizeof board, DDP_REMOTE_ATOMIC | DDP_REMOTE_WRITE | DDP_REMOTE_READ,
              &region) != 0)
    die("ddp_reg");
  /* An Immediate takes a receive and leaves its buffers alone: none are needed. */
  for (int i = 0; i < workers; i++) post_receive(srq, NULL, 0, 0);

  if (setsockopt(listening, SOL_DDP, DDP_SRQ, &srq, sizeof srq) != 0 ||
      setsockopt(listening, SOL_DDP, DDP_PRIVATE_DATA, &region, sizeof region) != 0)
    die("setsockopt");
  for (int i = 0; i < workers; i++) {
    connection[i] = accept(listening, NULL, NULL);
    if (connection[i] < 0) die("accept");
    if (ddp_establish(connection[i], 0) != 0 && errno != EAGAIN) die("ddp_establish");
  }
  for (int i = 0; i < workers; i++) {
    const struct ddp_completion done = expect(cq, DDP_RECEIVED);
    const uint64_t line = done.value >> 56;
    const char* name = line < WORKERS_MAX ? board.name[line] : "?";
    printf("%.31s: %llu letters\n", name, (unsigned long long)(done.value << 8 >> 8));
  }
  for (int i = 0; i < workers; i++) post_send(connection[i], NULL, 0, 0);
  /* Each answer has left, and each worker has read and gone. */
  for (int left = 2 * workers; left > 0; left--) {
    const struct ddp_completion done = next_completion(cq);
    if (done.kind == DDP_ENDED) close(done.fd);
  }
  print_histogram(&board);
  close(srq);
  close(cq);
}

/* Adds and says what was there. */
static uint64_t fetch_add(int fd, const struct ddp_region* at, size_t offset, uint64_t operand) {
  const struct ddp_atomic_work work = {.operation = DDP_FETCH_ADD,
                                       .operand = operand,
                                       .remote_to = at->to + offset,
                                       .remote_stag = at->stag};
  if (ddp_post_atomic(fd, &work, 1) != 1) die("ddp_post_atomic");
  return expect(fd, DDP_ATOMIC_DONE).value;
}

static uint64_t count_letters(const char* path, uint64_t count[LETTERS]) {
  FILE* file = fopen(path, "r");
  uint64_t total = 0;
  if (file == NULL) die(path);
  for (int c; (c = fgetc(file)) != EOF;) {
    const int letter = (c | 0x20) - 'a';
    if (letter < 0 || letter >= LETTERS) continue;
    count[letter]++;
    total++;
  }
  fclose(file);
  return total;
}

static void work(const char* host, const char* port, const char* path) {
  static struct board copy;
  struct ddp_region board, ours;
  socklen_t size = sizeof board;
  uint64_t count[LETTERS] = {0};
  const uint64_t total = count_letters(path, count);
  const int fd = message_socket();
  post_receive(fd, NULL, 0, 0); /* for the server's sign */
  connect_to(fd, host, port);
  if (getsockopt(fd, SOL_DDP, DDP_PRIVATE_DATA, &board, &size) != 0 || size != sizeof board)
    die("no board");
  const uint64_t line = fetch_add(fd, &board, offsetof(struct board, lines), 1);
  if (line >= WORKERS_MAX) die("the board is full");

  const struct iovec name = {(void*)path, strnlen(path, sizeof copy.name[0] - 1)};
  const struct ddp_write_work write = {
      .iov = &name,
      .iov_count = 1,
      .flags = DDP_SILENT,
      .remote_to = board.to + offsetof(struct board, name) + line * sizeof copy.name[0],
      .remote_stag = board.stag};
  if (ddp_post_write(fd, &write, 1) != 1) die("ddp_post_write");
  /* All at once; those that the peer does not take yet wait in the queue. */
  struct ddp_atomic_work add[LETTERS];
  for (int i = 0; i < LETTERS; i++)
    add[i] = (struct ddp_atomic_work){
        .operation = DDP_FETCH_ADD,
        .flags = DDP_SILENT,
        .operand = count[i],
        .remote_to = board.to + offsetof(struct board, count) + (size_t)i * sizeof(uint64_t),
        .remote_stag = board.stag};
  if (ddp_post_atomic(fd, add, LETTERS) != LETTERS) die("ddp_post_atomic");
  const struct ddp_send_work news = {.flags = DDP_IMMEDIATE | DDP_FENCE | DDP_SILENT,
                                     .immediate = line << 56 | total};
  if (ddp_post_send(fd, &news, 1) != 1) die("ddp_post_send");

  expect(fd, DDP_RECEIVED);
  if (ddp_reg(fd, &copy, sizeof copy, DDP_LOCAL_WRITE, &ours) != 0) die("ddp_reg");
  post_read(fd, &copy, sizeof copy, &ours, &board, 0);
  expect(fd, DDP_READ);
  print_histogram(&copy);
  finish(fd);
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "serve") == 0) {
    const int workers = atoi(argv[3]);
    if (workers > 0 && workers <= WORKERS_MAX) return serve(argv[2], workers), 0;
  } else if (argc == 4) {
    return work(argv[1], argv[2], argv[3]), 0;
  }
  fprintf(stderr, "usage: histogram serve PORT WORKERS | histogram HOST PORT FILE\n");
  return 2;
}
