// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The program that exec_test and stdio_test execute with a connection among its descriptors. Its
// first argument says what it does; it knows nothing of the library. Also built without a dynamic
// linker.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Answers each line in upper case, by stdio on descriptors 0 and 1.
int answer_lines() {
  char line[256];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    for (char* p = line; *p != 0; ++p)
      if (*p >= 'a' && *p <= 'z') *p = static_cast<char>(*p - 'a' + 'A');
    printf("%s", line);
  }
  return feof(stdin) != 0 && ferror(stdin) == 0 ? 0 : 1;
}

// Writes in all of stdio's ways and leaves the rest to exit.
int print() {
  printf("%d %s\n", 1, "printf");
  fputs("2 fputs\n", stdout);
  fprintf(stderr, "stderr comes first\n");
  fwrite("3 fwrite\n", 1, 9, stdout);
  putchar('4');
  puts(" puts");
  return 0;
}

// A line in and a line out by one FILE on descriptor 3.
int use_fdopen() {
  FILE* file = fdopen(3, "r+");
  if (file == nullptr || fileno(file) != 3) return 1;
  char line[256];
  if (fgets(line, sizeof line, file) == nullptr) return 2;
  if (fprintf(file, "you said %s", line) < 0 || fflush(file) != 0) return 3;
  if (fseek(file, 0, SEEK_SET) == 0 || errno != ESPIPE) return 4;
  if (dprintf(3, "%s\n", "and dprintf") != 12) return 5;
  if (fclose(file) != 0) return 6;
  return fcntl(3, F_GETFD) == -1 && errno == EBADF ? 0 : 7;
}

// Whatever tells of streams that this program has not inherited is made useless.
int damage() {
  const char* number = getenv("DDPSOCK_HANDOVER");
  if (number == nullptr) return 0;
  if (ftruncate(atoi(number), 0) != 0) return 1;
  return 2;
}

}  // namespace

int main(int count, char** arguments) {
  const char* task = count > 1 ? arguments[1] : "";
  if (strcmp(task, "lines") == 0) return answer_lines();
  if (strcmp(task, "print") == 0) return print();
  if (strcmp(task, "fdopen") == 0) return use_fdopen();
  if (strcmp(task, "nothing") == 0) return 0;
  if (strcmp(task, "damage") == 0) return damage();
  if (strcmp(task, "become") == 0) execv(arguments[2], arguments + 2);
  return 127;
}
