// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/sparse.h"

#include <errno.h>
#include <sys/mman.h>

#include <atomic>

namespace ddpsock::base {
namespace {

constinit std::atomic<bool> has_any{false};
constinit std::atomic<const void*> anonymous{nullptr};

}  // namespace

// MCL_FUTURE fills what may be accessed, so nothing may until the mapping is unlocked.
void* map_sparse(size_t size, int fd, off_t offset, int protection) {
  const int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* p = mmap(nullptr, size, PROT_NONE, flags, fd, offset);
  if (p == MAP_FAILED) return nullptr;
  if (munlock(p, size) != 0 || mprotect(p, size, protection) != 0) {
    const int error = errno;
    munmap(p, size);
    errno = error;
    return nullptr;
  }
  if (fd < 0) anonymous.store(p, std::memory_order_relaxed);
  has_any.store(true, std::memory_order_relaxed);
  return p;
}

bool has_sparse() {
  return has_any.load(std::memory_order_relaxed);
}

bool is_sparse(const void* from, std::string_view name) {
  return name.starts_with("/memfd:ddpsock") || from == anonymous.load(std::memory_order_relaxed);
}

}  // namespace ddpsock::base
