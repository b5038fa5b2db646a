/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies a file without copying it: Writes leave from the sender's mapping of the file and land in
 * the receiver's. A checksum of the whole is compared at the end.
 *
 *     ddprun --off -- transfer receive PORT FILE
 *     ddprun --off -- transfer send HOST PORT FILE
 *
 * The sender tells the size; the receiver answers with the region that the bytes go to; the sender
 * writes, then sends its checksum, which arrives after the bytes; the receiver answers its own.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "connect.h"

#define PIECE (1u << 20)
#define UNDER_WAY 8
#define BAR 40

static void draw(uint64_t done, uint64_t size) {
  const int filled = size != 0 ? (int)(done * BAR / size) : BAR;
  fprintf(stderr, "\r[%.*s%*s] %3d%%", filled, "########################################",
          BAR - filled, "", filled * 100 / BAR);
  if (done == size) fputc('\n', stderr);
}

static void* map(int file, size_t size, int protection) {
  if (size == 0) return NULL;
  void* memory = mmap(NULL, size, protection, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) die("mmap");
  return memory;
}

static void write_pieces(int fd, const unsigned char* file, uint64_t size,
                         const struct ddp_region* to, uint64_t* sum) {
  uint64_t posted = 0, written = 0;
  while (written < size) {
    if (posted < size && posted - written < (uint64_t)UNDER_WAY * PIECE) {
      const size_t n = size - posted < PIECE ? size - posted : PIECE;
      const struct iovec iov = {(void*)(file + posted), n};
      const struct ddp_write_work work = {
          .iov = &iov, .iov_count = 1, .remote_to = to->to + posted, .remote_stag = to->stag};
      if (ddp_post_write(fd, &work, 1) != 1) die("ddp_post_write");
      *sum = checksum(*sum, file + posted, n); /* while the piece travels */
      posted += n;
    } else {
      written += expect(fd, DDP_WRITTEN).bytes;
      draw(written, size);
    }
  }
}

static int send_file(const char* host, const char* port, const char* name) {
  struct stat about;
  struct ddp_region to;
  uint64_t sum = CHECKSUM_OF_NOTHING, answer = 0;
  const int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &about) != 0) die(name);
  const uint64_t size = (uint64_t)about.st_size;
  const unsigned char* bytes = map(file, size, PROT_READ);

  const int fd = message_socket();
  post_receive(fd, &to, sizeof to, 0);
  post_receive(fd, &answer, sizeof answer, 0);
  connect_to(fd, host, port);
  post_send(fd, &size, sizeof size, 0);
  expect(fd, DDP_SENT);
  if (expect(fd, DDP_RECEIVED).bytes != sizeof to) die("not a receiver of files");
  write_pieces(fd, bytes, size, &to, &sum);
  post_send(fd, &sum, sizeof sum, 0);
  expect(fd, DDP_SENT);
  expect(fd, DDP_RECEIVED);
  finish(fd);
  printf("%llu bytes, checksum %016llx, %s\n", (unsigned long long)size, (unsigned long long)sum,
         answer == sum ? "arrived" : "DAMAGED");
  return answer == sum ? 0 : 1;
}

static int receive_file(const char* port, const char* name) {
  uint64_t size = 0, wanted = 0;
  struct ddp_region region = {0};
  const int listener = listen_on(port);
  const int fd = accept(listener, NULL, NULL);
  if (fd < 0) die("accept");
  close(listener);
  post_receive(fd, &size, sizeof size, 0);
  post_receive(fd, &wanted, sizeof wanted, 0);
  if (expect(fd, DDP_RECEIVED).bytes != sizeof size) die("not a sender of files");

  const int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  /* Allocated, so that a full disk is told here and not by a signal in the midst of it. */
  if (file < 0 || (size != 0 && (errno = posix_fallocate(file, 0, (off_t)size)) != 0)) die(name);
  unsigned char* bytes = map(file, size, PROT_READ | PROT_WRITE);
  if (size != 0 && ddp_reg(fd, bytes, size, DDP_REMOTE_WRITE, &region) != 0) die("ddp_reg");
  post_send(fd, &region, sizeof region, 0);
  expect(fd, DDP_SENT);
  expect(fd, DDP_RECEIVED); /* the checksum, hence all that was written before it */
  if (size != 0 && ddp_dereg(fd, region.stag) != 0) die("ddp_dereg");
  const uint64_t sum = checksum(CHECKSUM_OF_NOTHING, bytes, size);
  post_send(fd, &sum, sizeof sum, 0);
  expect(fd, DDP_SENT);
  finish(fd);
  printf("%llu bytes, checksum %016llx, %s\n", (unsigned long long)size, (unsigned long long)sum,
         sum == wanted ? "as sent" : "DAMAGED");
  return sum == wanted ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "receive") == 0) return receive_file(argv[2], argv[3]);
  if (argc == 5 && strcmp(argv[1], "send") == 0) return send_file(argv[2], argv[3], argv[4]);
  fprintf(stderr, "usage: transfer receive PORT FILE | transfer send HOST PORT FILE\n");
  return 2;
}
