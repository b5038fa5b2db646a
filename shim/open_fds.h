// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every open descriptor of this thread, as /proc has them: the process's, but for a thread that has
// a table of its own, and where the first thread has ended.
#ifndef DDPSOCK_SHIM_OPEN_FDS_H_
#define DDPSOCK_SHIM_OPEN_FDS_H_

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/kernel_view.h"
#include "shim/exec_environment.h"
#include "shim/fd_table.h"

namespace ddpsock::shim {

// Calls visit(fd) for each; without /proc, or a number to read it by, for the first 1024 and those
// that the table knows, open or not. Only numbers from `first` on. No allocation, no cancellation
// point; works in a vfork child.
template <typename Visit>
void visit_open_fds(Visit visit, int first = 0) {
  const int list =
      base::kernel::openat(AT_FDCWD, "/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (list < 0) {
    constexpr int kFirst = 1024, kBeyond = 16;
    for (int fd = first; fd < std::max(kFirst, fds_end() + kBeyond); ++fd) visit(fd);
    return;
  }
  // Where the entry of a number lies, so that those below cost nothing.
  constexpr int kBeforeNumbers = 2;
  if (first > 0) lseek(list, first + kBeforeNumbers, SEEK_SET);
  alignas(dirent64) char entries[2048];
  for (ssize_t size; (size = getdents64(list, entries, sizeof(entries))) > 0;) {
    for (ssize_t at = 0; at < size;) {
      const auto& entry = *reinterpret_cast<const dirent64*>(entries + at);
      if (const int fd = parse_fd(entry.d_name); fd >= first && fd != list) visit(fd);
      at += entry.d_reclen;
    }
  }
  base::close_own(list);
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_OPEN_FDS_H_
