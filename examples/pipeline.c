/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Overlaps computation with transfer: the producer computes rows of the Mandelbrot set and posts
 * each; while the library sends it, the next is computed into another buffer.
 *
 *     ddprun --off -- pipeline consume PORT
 *     ddprun --off -- pipeline produce HOST PORT ROWS
 *
 * The consumer has BUFFERS receives posted and answers each row with an empty message, which allows
 * another: a message that nobody has posted a receive for would end the connection.
 */
#include <time.h>

#include "connect.h"

#define BUFFERS 4
#define COLUMNS 4096
#define ITERATIONS 200

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void compute_row(uint16_t* pixels, int row, int rows) {
  for (int column = 0; column < COLUMNS; column++) {
    const double cx = -2.0 + 3.0 * column / COLUMNS, cy = -1.5 + 3.0 * row / rows;
    double x = 0, y = 0;
    uint16_t i = 0;
    for (; i < ITERATIONS && x * x + y * y < 4; i++) {
      const double next = x * x - y * y + cx;
      y = 2 * x * y + cy;
      x = next;
    }
    pixels[column] = i;
  }
}

static uint64_t add_up(const uint16_t* pixels) {
  uint64_t sum = 0;
  for (int i = 0; i < COLUMNS; i++) sum += pixels[i];
  return sum;
}

static int produce(const char* host, const char* port, int rows) {
  static uint16_t buffers[BUFFERS][COLUMNS];
  int is_sent[BUFFERS];
  double waited = 0;
  uint64_t sum = 0;
  int allowed = BUFFERS, answered = 0;
  for (int i = 0; i < BUFFERS; i++) is_sent[i] = 1;
  const int fd = message_socket();
  for (int i = 0; i < BUFFERS; i++) post_receive(fd, NULL, 0, 0);
  connect_to(fd, host, port);
  const double start = seconds();
  for (int row = 0; row < rows || answered < rows;) {
    const int mine = row % BUFFERS;
    if (row < rows && is_sent[mine] && allowed > 0) {
      compute_row(buffers[mine], row, rows);
      sum += add_up(buffers[mine]);
      is_sent[mine] = 0; /* from here to its completion the buffer is the library's */
      post_send(fd, buffers[mine], sizeof buffers[mine], (uint64_t)mine);
      allowed--;
      row++;
      continue;
    }
    const double before = seconds();
    const struct ddp_completion done = next_completion(fd);
    waited += seconds() - before;
    if (done.kind == DDP_SENT) {
      is_sent[done.cookie] = 1;
    } else if (done.kind == DDP_RECEIVED) {
      post_receive(fd, NULL, 0, 0);
      allowed++;
      answered++;
    } else {
      fprintf(stderr, "the consumer left after %d rows\n", answered);
      return 1;
    }
  }
  printf("%d rows, sum %llu, %.3f s, of which %.3f s waiting\n", rows, (unsigned long long)sum,
         seconds() - start, waited);
  finish(fd);
  return 0;
}

static int consume(const char* port) {
  static uint16_t buffers[BUFFERS][COLUMNS];
  uint64_t sum = 0;
  int rows = 0;
  const int listener = listen_on(port);
  const int fd = accept(listener, NULL, NULL);
  if (fd < 0) die("accept");
  for (uint64_t i = 0; i < BUFFERS; i++) post_receive(fd, buffers[i], sizeof buffers[i], i);
  for (;;) {
    const struct ddp_completion done = next_completion(fd);
    if (done.kind == DDP_ENDED) break;
    if (done.kind != DDP_RECEIVED) continue;
    if (done.bytes != sizeof buffers[0]) die("not a row");
    uint16_t* row = buffers[done.cookie];
    sum += add_up(row);
    rows++;
    post_receive(fd, row, sizeof buffers[0], done.cookie); /* first, then the answer */
    post_send(fd, NULL, 0, 0);
  }
  close(fd);
  close(listener);
  printf("%d rows, sum %llu\n", rows, (unsigned long long)sum);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "consume") == 0) return consume(argv[2]);
  if (argc == 5 && strcmp(argv[1], "produce") == 0) return produce(argv[2], argv[3], atoi(argv[4]));
  fprintf(stderr, "usage: pipeline consume PORT | pipeline produce HOST PORT ROWS\n");
  return 2;
}
