// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every open descriptor of this process, as /proc has them.
#ifndef DDPSOCK_SHIM_OPEN_FDS_H_
#define DDPSOCK_SHIM_OPEN_FDS_H_

#include <dirent.h>
#include <fcntl.h>

#include "base/fd.h"
#include "base/kernel_view.h"
#include "shim/exec_environment.h"

namespace ddpsock::shim {

// Calls visit(fd) for each; without /proc for the first 1024 numbers, open or not, and then it
// returns false. No allocation, no cancellation point; works in a vfork child.
template <typename Visit>
bool visit_open_fds(Visit visit) {
  constexpr int kFirst = 1024;
  const int list = base::kernel::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (list < 0) {
    for (int fd = 0; fd < kFirst; ++fd) visit(fd);
    return false;
  }
  alignas(dirent64) char entries[2048];
  for (ssize_t size; (size = getdents64(list, entries, sizeof(entries))) > 0;) {
    for (ssize_t at = 0; at < size;) {
      const auto& entry = *reinterpret_cast<const dirent64*>(entries + at);
      if (const int fd = parse_fd(entry.d_name); fd >= 0 && fd != list) visit(fd);
      at += entry.d_reclen;
    }
  }
  base::close_own(list);
  return true;
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_OPEN_FDS_H_
