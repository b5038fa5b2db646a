// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A server that listener_fates_test executes: it accepts one connection on the listening descriptor
// that its argument names, answers "hello" with "world", and says on its output what it has read.
// Also built without a dynamic linker.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int count, char** arguments) {
  setvbuf(stdout, nullptr, _IONBF, 0);
  printf("ready\n");
  const int fd = accept(count > 1 ? atoi(arguments[1]) : 3, nullptr, nullptr);
  char word[6] = "";
  const ssize_t size = fd < 0 ? -1 : recv(fd, word, 5, MSG_WAITALL);
  for (ssize_t i = 0; i < size; ++i)
    if (word[i] < ' ' || word[i] > '~') word[i] = '?';
  printf("read %s\n", word);
  const bool is_well = strcmp(word, "hello") == 0;
  return is_well && write(fd, "world", 5) == 5 ? 0 : 1;
}
