// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// mlockall: a program that wants all its memory in place must not be given gigabytes that this
// library has reserved and never touched, nor be refused for their size. Each mapping but those is
// locked alone.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sparse.h"
#include "shim/calls.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

struct Mapping {
  void* from;
  size_t size;
  const char* name;
};

// A line of /proc/PID/maps; its end is cut off.
Mapping parse_mapping(char* line) {
  line[strcspn(line, "\n")] = '\0';
  unsigned long from = 0, to = 0;
  int name = 0;
  sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &name);
  return {reinterpret_cast<void*>(from), to - from, line + name};
}

// Another thread may have unmapped it since it was listed. MS_ASYNC does nothing else.
bool is_still_mapped(const Mapping& m) {
  return msync(m.from, m.size, MS_ASYNC) == 0 || errno != ENOMEM;
}

// As mlockall does for each: pages that cannot be had are no failure, only the limit is.
bool lock(const Mapping& m, bool is_on_fault) {
  if (mlock2(m.from, m.size, MLOCK_ONFAULT) != 0) {
    const int error = errno;
    if (error == ENOMEM && !is_still_mapped(m)) return true;
    errno = error;
    return false;
  }
  if (!is_on_fault) mlock(m.from, m.size);
  return true;
}

bool lock_all_but_sparse(bool is_on_fault) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) {
    errno = EAGAIN;
    return false;
  }
  char* line = nullptr;
  size_t room = 0;
  bool is_locked = true;
  while (is_locked && getline(&line, &room, maps) >= 0) {
    const Mapping m = parse_mapping(line);
    const bool is_kernels = strcmp(m.name, "[vsyscall]") == 0;
    if (!is_kernels && !base::is_sparse(m.from, m.name)) is_locked = lock(m, is_on_fault);
  }
  const int error = errno;
  free(line);
  fclose(maps);
  errno = error;
  return is_locked;
}

}  // namespace

int own_mlockall(int flags) {
  constexpr int kKnown = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
  if ((flags & MCL_CURRENT) == 0 || (flags & ~kKnown) != 0 || !base::has_sparse())
    return real.mlockall(flags);
  // What an earlier call said of the future ends too.
  const int future = flags & ~MCL_CURRENT;
  if ((flags & MCL_FUTURE) != 0 ? real.mlockall(future) != 0 : munlockall() != 0) return -1;
  return lock_all_but_sparse((flags & MCL_ONFAULT) != 0) ? 0 : -1;
}

}  // namespace ddpsock::shim
