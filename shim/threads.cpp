// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/cancellation.h"
#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "shim/exec_environment.h"

namespace ddpsock::shim {
namespace {

OtherThreads judge(int thread) {
  char text[512];
  snprintf(text, sizeof text, "/proc/self/task/%d/stat", thread);
  const int file = open(text, O_RDONLY | O_CLOEXEC);
  // Only one that has ended meanwhile is none.
  if (file < 0) return errno == ENOENT ? OtherThreads::kNone : OtherThreads::kPrograms;
  const long n = base::kernel_call(SYS_read, file, text, sizeof text - 1);
  base::close_own(file);
  text[n > 0 ? n : 0] = '\0';
  // Behind the name: state, five numbers, and the kernel's flags. One that has been joined may be
  // there for a while yet.
  constexpr unsigned kExiting = 4;
  unsigned flags = 0;
  const char* name_end = strrchr(text, ')');
  if (name_end == nullptr || sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
      (flags & kExiting) != 0)
    return OtherThreads::kNone;
  return strstr(text, "(ddpsock)") != nullptr ? OtherThreads::kLibrarys : OtherThreads::kPrograms;
}

// This thread's number where /proc was mounted, which may be another pid namespace. 0: unknown.
int own_number() {
  char link[64];
  const ssize_t n = readlink("/proc/thread-self", link, sizeof link - 1);
  link[std::max<ssize_t>(n, 0)] = '\0';
  const char* name = strrchr(link, '/');
  return name != nullptr ? parse_fd(name + 1) : 0;
}

}  // namespace

OtherThreads other_threads() {
  if (base::is_single_threaded()) return OtherThreads::kNone;
  const base::KeepErrno keep;
  const int list = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (list < 0) return OtherThreads::kPrograms;
  const int mine = own_number();
  auto found = OtherThreads::kNone;
  alignas(dirent64) char entries[2048];
  ssize_t size = 0;
  while ((size = getdents64(list, entries, sizeof(entries))) > 0) {
    for (ssize_t at = 0; at < size;) {
      const auto& entry = *reinterpret_cast<const dirent64*>(entries + at);
      if (const int thread = parse_fd(entry.d_name); thread > 0 && thread != mine)
        found = std::max(found, judge(thread));
      at += entry.d_reclen;
    }
  }
  base::close_own(list);
  return size == 0 && mine > 0 ? found : OtherThreads::kPrograms;
}

}  // namespace ddpsock::shim
