// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/wrap/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/uio.h>
#include <time.h>

#include <charconv>
#include <cstring>
#include <new>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/kernel_view.h"
#include "base/process.h"

namespace ddpsock::engine::wrap {
namespace {

constexpr uint64_t kAllSignals = ~uint64_t{0};
constexpr uint64_t kFileTooLarge = uint64_t{1} << (SIGXFSZ - 1);
constexpr mode_t kMode = 0600;
// Pieces of a record, and what stands before them.
constexpr size_t kMostPieces = 8;

pid_t own_pid() {
  return static_cast<pid_t>(base::kernel_call(SYS_getpid));
}

int open_for_appending(const char* path) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  return static_cast<int>(base::kernel_call(SYS_openat, AT_FDCWD, path, kFlags, kMode));
}

int64_t changed_at(const struct stat& st) {
  return int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
}

// Static, and known to every C library.
const char* text_of(int error) {
  switch (error) {
    case ENOSPC:
      return "No space left on device";
    case EFBIG:
      return "File too large";
    case EDQUOT:
      return "Disk quota exceeded";
    case EIO:
      return "Input/output error";
    default:
      return "it cannot be written";
  }
}

bool is_too_large_pending() {
  uint64_t pending = 0;
  base::kernel_call(SYS_rt_sigpending, &pending, sizeof pending);
  return (pending & kFileTooLarge) != 0;
}

void forget_too_large() {
  const timespec now{};
  base::kernel_call(SYS_rt_sigtimedwait, &kFileTooLarge, nullptr, &now, sizeof kFileTooLarge);
}

// Another thread's record is written in less, but on a disk that stands.
constexpr Duration kPatience = Duration::from_ms(100);
constexpr uint32_t kBeingFreed = ~0u;
constexpr int kMostLooks = 10'000;
constexpr unsigned kMostNumbers = 1u << 20;  // fs.nr_open

}  // namespace

bool RecordLock::acquire() {
  const uint32_t mine = base::process_generation();
  int looks = 0;
  for (uint32_t seen = generation_.load(); seen != mine; seen = generation_.load()) {
    // For ever, if its process forked in the middle of that.
    if (++looks > kMostLooks) return false;
    if (seen == kBeingFreed || !generation_.compare_exchange_strong(seen, kBeingFreed)) continue;
    new (&lease_) base::Lease();
    generation_.store(mine);
  }
  // Where it was not had in that time, the next ones do not wait for it again.
  const bool has_missed = has_missed_.load(std::memory_order_relaxed);
  const auto got = has_missed ? lease_.try_take_over() : lease_.acquire(base::now() + kPatience);
  const bool is_held =
      got == base::Lease::Outcome::kAcquired || got == base::Lease::Outcome::kInherited;
  if (is_held == has_missed) has_missed_.store(!is_held, std::memory_order_relaxed);
  return is_held;
}

Quietly::Quietly(RecordLock& lock) : lock_(lock) {
  base::kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, &kAllSignals, &mask_, sizeof mask_);
  is_held_ = lock_.acquire();
}

Quietly::~Quietly() {
  if (is_held_) lock_.release();
  base::kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, &mask_, nullptr, sizeof mask_);
}

bool RecordFile::set(const char* text, Bytes header, Records* notes) {
  const char* const end = text + std::strlen(text);
  const auto pid = std::from_chars(text, end, first_);
  if (pid.ec != std::errc{} || pid.ptr == end || *pid.ptr != ':') return false;
  const auto since = std::from_chars(pid.ptr + 1, end, since_);
  if (since.ec != std::errc{} || since.ptr == end || *since.ptr != ':') return false;
  const char* const path = since.ptr + 1;
  const auto size = static_cast<size_t>(end - path);
  // With room for a dot and the number of a process.
  if (*path != '/' || size + 12 >= path_.size()) return false;
  std::memcpy(path_.data(), path, size + 1);
  header_ = header;
  notes_ = notes;
  return true;
}

void RecordFile::open_early() {
  if (!is_on() || own_pid() != first_) return;
  const base::KeepErrno keep;
  bool is_open;
  {
    const Quietly quietly(lock_);
    is_open = quietly && open_or_find();
  }
  if (!is_open) stop("it cannot be opened");
}

bool RecordFile::is_ours(int fd, long& size) const {
  struct stat st;
  if (fd < 0 || base::kernel::fstat(fd, st) != 0) return false;
  size = st.st_size;
  return st.st_dev == device_ && st.st_ino == inode_;
}

// Of this process, in the place of what it has inherited.
int RecordFile::open_own(uint32_t generation) {
  char path[PATH_MAX];
  const size_t size = std::strlen(path_.data());
  std::memcpy(path, path_.data(), size + 1);
  const pid_t pid = own_pid();
  if (pid != first_) {
    path[size] = '.';
    *std::to_chars(path + size + 1, path + sizeof path - 1, pid).ptr = '\0';
  }
  const int low = open_for_appending(path);
  if (low < 0) return -1;
  struct stat st;
  const auto high =
      static_cast<int>(base::kernel_call(SYS_fcntl, low, F_DUPFD_CLOEXEC, base::high_number()));
  base::close_own(low);
  if (high < 0) return -1;
  // What others have put there is theirs, and may be read by them.
  const bool is_own = base::kernel::fstat(high, st) == 0 && S_ISREG(st.st_mode) &&
                      st.st_uid == base::kernel::geteuid() && st.st_nlink == 1;
  if (!is_own) {
    base::close_own(high);
    return -1;
  }
  // What a process of an earlier run left that had this number.
  const bool is_old = pid != first_ && changed_at(st) < since_;
  if (is_old) base::kernel_call(SYS_ftruncate, high, 0);
  device_ = st.st_dev;
  inode_ = st.st_ino;
  generation_ = generation;
  if ((is_old || st.st_size == 0) && !header_.empty()) {
    const ssize_t n = base::kernel_call(SYS_write, high, header_.data(), header_.size());
    if (n != static_cast<ssize_t>(header_.size())) {
      base::kernel_call(SYS_ftruncate, high, 0);
      base::close_own(high);
      return -1;
    }
  }
  return high;
}

bool RecordFile::open_or_find() {
  const uint32_t generation = base::process_generation();
  long size;
  const bool is_there = is_ours(fd_, size);
  if (is_there && generation == generation_) return true;
  const int before = fd_;
  const dev_t device = device_;
  const ino_t inode = inode_;
  const int own = open_own(generation);
  if (own >= 0) {
    if (is_there) base::close_own(before);
    fd_ = own;
    return true;
  }
  device_ = device;
  inode_ = inode;
  generation_ = generation;
  fd_ = is_there ? before : -1;
  return is_there;
}

void RecordFile::put(std::span<const Bytes> pieces) {
  if (!is_on()) return;
  const base::KeepErrno keep;
  int error = 0;
  {
    const Quietly quietly(lock_);
    if (!quietly || !is_on()) return;
    const bool was_pending = is_too_large_pending();
    errno = 0;
    if (open_or_find()) {
      errno = 0;
      write(pieces);
    } else if (errno == 0) {
      errno = EBADF;
    }
    error = errno;
    if (error == EFBIG && !was_pending) forget_too_large();
  }
  if (error != 0) stop(text_of(error));
}

void RecordFile::make_room(unsigned first, unsigned last) {
  if (!is_on()) return;
  const base::KeepErrno keep;
  const Quietly quietly(lock_);
  const auto number = static_cast<unsigned>(fd_);
  long size;
  if (!quietly || fd_ < 0 || number < first || number > last || !is_ours(fd_, size)) return;
  const long moved =
      last < kMostNumbers ? base::kernel_call(SYS_fcntl, fd_, F_DUPFD_CLOEXEC, last + 1L) : -1;
  base::close_own(fd_);
  fd_ = static_cast<int>(moved);  // -1: opened again with the next record
}

// Leaves errno 0 where all of it is written.
void RecordFile::write(std::span<const Bytes> pieces) {
  std::array<iovec, kMostPieces> list;
  size_t count = 0, size = 0;
  for (Bytes piece : pieces) {
    if (piece.empty() || count == list.size()) continue;
    list[count++] = {const_cast<uint8_t*>(piece.data()), piece.size()};
    size += piece.size();
  }
  long before = 0, after = 0;
  if (!is_ours(fd_, before)) {
    errno = EBADF;
    return;
  }
  const ssize_t n = base::kernel_call(SYS_writev, fd_, list.data(), count);
  if (n < 0 || static_cast<size_t>(n) == size) return;
  // No more than that, if a relative has written behind it meanwhile.
  if (is_ours(fd_, after) && after == before + n) base::kernel_call(SYS_ftruncate, fd_, before);
  errno = ENOSPC;
}

void RecordFile::stop(const char* why) {
  if (!is_on() || is_stopped_.exchange(true)) return;
  const base::KeepErrno keep;
  if (notes_ != nullptr) notes_->print("%s: nothing more is written: %s", path_.data(), why);
}

}  // namespace ddpsock::engine::wrap
