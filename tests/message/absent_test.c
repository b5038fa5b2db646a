// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A C program that was linked without the library: where it is not loaded, the option fails and the
// calls are null; where it is, both are there. The argument says which is to be expected.
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "ddpsock/ddpsock.h"

static int fail(const char* what) {
  fprintf(stderr, "absent_test: %s (errno %d)\n", what, errno);
  return 1;
}

int main(int count, char** arguments) {
  const int is_expected = count == 2 && strcmp(arguments[1], "loaded") == 0;
  const int mode = DDP_MODE_MESSAGE;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return fail("no socket");
  if (ddp_is_loaded() != is_expected) return fail("ddp_is_loaded() is wrong");
  if (!is_expected) {
    if (setsockopt(fd, SOL_DDP, DDP_MODE, &mode, sizeof mode) == 0 || errno != ENOPROTOOPT) {
      return fail("DDP_MODE without the library");
    }
    return 0;
  }
  if (setsockopt(fd, SOL_DDP, DDP_MODE, &mode, sizeof mode) != 0) return fail("DDP_MODE");
  struct ddp_completion completion;
  if (ddp_poll(fd, &completion, 1) != 0) return fail("ddp_poll");
  return 0;
}
