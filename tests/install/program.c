// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Says whether the library is there, and whether a socket takes its option. C11 and C++.
#include <ddpsock/ddpsock.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

int main(void) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int mode = DDP_MODE_MESSAGE;
  const int failed = setsockopt(fd, SOL_DDP, DDP_MODE, &mode, sizeof mode);
  if (failed != 0 && errno != ENOPROTOOPT) perror("DDP_MODE");
  printf("%s %s\n", ddp_is_loaded() ? "loaded" : "absent", failed == 0 ? "taken" : "refused");
  return 0;
}
