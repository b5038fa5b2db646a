// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/arena_file.h"

#include <sys/stat.h>

#include "base/keep_errno.h"
#include "base/kernel_view.h"
#include "base/sparse.h"
#include "base/sys.h"
#include "relatives/arena_layout.h"
#include "shm/sealed_file.h"

namespace ddpsock::engine {

Identity Identity::of_caller() {
  const base::KeepErrno keep;
  uid_t real, effective, saved;
  gid_t real_group, effective_group, saved_group;
  if (base::kernel::getresuid(real, effective, saved) != 0 ||
      base::kernel::getresgid(real_group, effective_group, saved_group) != 0)
    return {};
  const bool is_one = real == effective && real == saved && real_group == effective_group &&
                      real_group == saved_group;
  return {is_one, real, real_group};
}

ArenaFile::ArenaFile(ArenaHead& head, int fd) : head_(head), fd_(fd) {
  struct stat st;
  if (fd < 0 || base::kernel::fstat(fd, st) != 0) return;
  inode_ = st.st_ino;
  device_ = st.st_dev;
  creator_ = Identity::of_caller();
}

bool ArenaFile::is_among_equals() const {
  const Identity me = Identity::of_caller();
  return me.is_one && creator_.is_one && me.user == creator_.user && me.group == creator_.group;
}

bool ArenaFile::is_mine(int fd) const {
  struct stat st;
  return fd >= 0 && base::kernel::fstat(fd, st) == 0 && st.st_ino == inode_ && st.st_dev == device_;
}

int ArenaFile::find_fd() const {
  if (is_mine(fd_) || fd_ < 0) return fd_;
  for (const std::atomic<int>& process : head_.processes) {
    const int pid = process.load(std::memory_order_acquire);
    if (pid <= 0) continue;
    // Whatever lies under that number by now.
    auto fd = shm::open_memory_file(static_cast<uint32_t>(pid), static_cast<uint32_t>(fd_));
    if (fd && is_mine(fd->get())) return fd->release();
  }
  return -1;
}

void ArenaFile::give_back(int fd) const {
  if (fd >= 0 && fd != fd_) base::close_own(fd);
}

void* ArenaFile::map_part(size_t offset, size_t size) const {
  const int fd = find_fd();
  if (fd < 0) return nullptr;
  void* part = base::map_sparse(size, fd, static_cast<off_t>(offset));
  give_back(fd);
  return part;
}

}  // namespace ddpsock::engine
