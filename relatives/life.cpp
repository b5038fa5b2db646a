// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "relatives/life.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/kernel_view.h"
#include "base/sys.h"

namespace ddpsock::engine {
namespace {

constexpr size_t kPage = 4096;

struct flock lock_of(off_t byte) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// The host has so many pieces of System V memory for all its programs. The lowest free place is the
// next one's; beyond the middle none is ours.
bool leaves_enough() {
  shminfo limits{};
  const int highest = shmctl(0, IPC_INFO, reinterpret_cast<shmid_ds*>(&limits));
  return highest < 0 || static_cast<unsigned long>(highest) < limits.shmmni / 2;
}

#ifndef SHM_STAT_ANY
#define SHM_STAT_ANY 15  // Linux 4.17
#endif

// It is asked for by its place in the kernel's table, which is the lower bits of its number.
bool stat_of_another_user(int id, shmid_ds& about) {
  for (const int bits : {15, 24}) {  // 24: ipcmni_extend
    const int place = id & ((1 << bits) - 1);
    if (base::kernel_call(SYS_shmctl, place, SHM_STAT_ANY, &about) == id) return true;
  }
  return false;
}

}  // namespace

// The description must be this process's own, hence a new one by way of /proc.
bool LifeLock::hold(int file, off_t byte, Heirs heirs) {
  const base::KeepErrno keep;
  page_ = nullptr;
  // Not snprintf: each of its pages is a fault in a fresh child.
  char path[32] = "/proc/self/fd/";
  *std::to_chars(path + std::string_view(path).size(), std::end(path) - 1, file).ptr = '\0';
  const int own = open(path, O_RDWR | O_CLOEXEC);
  if (own < 0) return false;
  struct flock lock = lock_of(byte);
  void* page = MAP_FAILED;
  if (base::sys.fcntl(own, F_OFD_SETLK, &lock) == 0)
    page = mmap(nullptr, kPage, PROT_NONE, MAP_SHARED | MAP_NORESERVE, own, 0);
  base::close_own(own);
  if (page == MAP_FAILED) return false;
  if (heirs == Heirs::kNone && madvise(page, kPage, MADV_DONTFORK) != 0) {
    munmap(page, kPage);
    return false;
  }
  page_ = page;
  return true;
}

void LifeLock::let_go() {
  const base::KeepErrno keep;
  if (page_ != nullptr) munmap(page_, kPage);
  page_ = nullptr;
}

LifeLock::State LifeLock::look(int file, off_t byte) {
  const base::KeepErrno keep;
  struct flock lock = lock_of(byte);
  if (base::sys.fcntl(file, F_OFD_GETLK, &lock) != 0) return State::kUnknown;
  return lock.l_type == F_UNLCK ? State::kFree : State::kHeld;
}

bool LifeLock::hold_weakly(int file, off_t byte) {
  const base::KeepErrno keep;
  struct flock lock = lock_of(byte);
  return base::sys.fcntl(file, F_SETLK, &lock) == 0;
}

// Marked for removal at once: it goes with the last that has it.
void Lineage::begin() {
  const base::KeepErrno keep;
  if (page_ != nullptr) shmdt(page_);
  page_ = nullptr;
  id_ = leaves_enough() ? shmget(IPC_PRIVATE, kPage, S_IRUSR | S_IWUSR) : -1;
  if (id_ < 0) return;
  void* page = shmat(id_, nullptr, 0);
  shmctl(id_, IPC_RMID, nullptr);
  if (page == reinterpret_cast<void*>(-1)) {
    id_ = -1;
  } else {
    page_ = page;
  }
}

bool Lineage::has_unknown() const {
  if (id_ < 0) return false;
  const base::KeepErrno keep;
  shmid_ds about{};
  if (shmctl(id_, IPC_STAT, &about) == 0) return about.shm_nattch > 1;
  return errno == EACCES && (!stat_of_another_user(id_, about) || about.shm_nattch > 1);
}

void Lineage::expect_child() const {
  const base::KeepErrno keep;
  if (page_ != nullptr) madvise(page_, kPage, MADV_DONTFORK);
}

void Lineage::child_is_made() const {
  const base::KeepErrno keep;
  if (page_ != nullptr) madvise(page_, kPage, MADV_DOFORK);
}

uint64_t pid_namespace() {
  const base::KeepErrno keep;
  struct stat st;
  return base::kernel::stat("/proc/self/ns/pid", st) == 0 ? st.st_ino : 0;
}

bool is_thread_stopped(pid_t pid, pid_t thread) {
  const base::KeepErrno keep;
  char path[64] = "/proc/";
  char* end = std::to_chars(path + std::string_view(path).size(), std::end(path), pid).ptr;
  end = std::ranges::copy(std::string_view("/task/"), end).out;
  end = std::to_chars(end, std::end(path), thread).ptr;
  *std::ranges::copy(std::string_view("/stat"), end).out = '\0';
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[128];  // number, name in brackets, state
  const ssize_t n = pread(fd, text, sizeof text, 0);
  base::close_own(fd);
  const std::string_view line(text, n > 0 ? static_cast<size_t>(n) : 0);
  const size_t behind_name = line.rfind(") ");
  if (behind_name == line.npos || behind_name + 2 >= line.size()) return false;
  const char state = line[behind_name + 2];
  return state == 'T' || state == 't';
}

bool is_process_gone(pid_t pid) {
  const base::KeepErrno keep;
  const base::UniqueFd fd(static_cast<int>(base::kernel_call(SYS_pidfd_open, pid, 0)));
  if (!fd.is_valid())
    return errno == ESRCH || (errno != EINVAL && kill(pid, 0) != 0 && errno == ESRCH);
  pollfd p{fd.get(), POLLIN, 0};
  return base::sys.poll(&p, 1, 0) > 0;
}

}  // namespace ddpsock::engine
