/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An echo server and its client.
 *
 *     echo serve PORT         serves one client after another
 *     echo ask HOST PORT      sends its input, prints what comes back
 */
#include <arpa/inet.h>
#include <ddpsock/ddpsock.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char* what) {
  perror(what);
  exit(1);
}

static int make_socket(void) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  const int mode = DDP_MODE_STREAM; /* without ddpsock the next line fails, and all stays TCP */
  setsockopt(fd, SOL_DDP, DDP_MODE, &mode, sizeof mode);
  return fd;
}

static struct sockaddr_in address_of(const char* host, const char* port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
    fprintf(stderr, "%s is not an IPv4 address\n", host);
    exit(2);
  }
  return address;
}

static void send_all(int fd, const char* bytes, size_t size) {
  while (size != 0) {
    const ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
    if (n < 0) die("send");
    bytes += n;
    size -= (size_t)n;
  }
}

static void serve(const char* port) {
  struct sockaddr_in address = address_of("127.0.0.1", port);
  socklen_t size = sizeof address;
  char bytes[4096];
  const int listener = make_socket();
  if (bind(listener, (struct sockaddr*)&address, size) != 0) die("bind");
  if (listen(listener, 16) != 0) die("listen");
  if (getsockname(listener, (struct sockaddr*)&address, &size) != 0) die("getsockname");
  printf("listening on port %d\n", ntohs(address.sin_port));
  fflush(stdout);
  for (;;) {
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0) die("accept");
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) send_all(fd, bytes, (size_t)n);
    if (n < 0) perror("recv");
    close(fd);
  }
}

static int ask(const char* host, const char* port) {
  const struct sockaddr_in address = address_of(host, port);
  char line[4096], answer[4096];
  const int fd = make_socket();
  if (connect(fd, (const struct sockaddr*)&address, sizeof address) != 0) die("connect");
  while (fgets(line, sizeof line, stdin) != NULL) {
    const size_t size = strlen(line);
    send_all(fd, line, size);
    for (size_t have = 0; have < size;) {
      const ssize_t n = recv(fd, answer + have, size - have, 0);
      if (n < 0) die("recv");
      if (n == 0) {
        fprintf(stderr, "the server left\n");
        return 1;
      }
      have += (size_t)n;
    }
    fwrite(answer, 1, size, stdout);
  }
  close(fd);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "serve") == 0) serve(argv[2]);
  if (argc == 4 && strcmp(argv[1], "ask") == 0) return ask(argv[2], argv[3]);
  fprintf(stderr, "usage: echo serve PORT | echo ask HOST PORT\n");
  return 2;
}
