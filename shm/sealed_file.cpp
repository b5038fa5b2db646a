// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/sealed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>

#include "base/kernel_call.h"
#include "base/kernel_view.h"
#include "base/sparse.h"
#include "base/sys.h"

namespace ddpsock::engine::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
using Path = std::array<char, 48>;

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

base::UniqueFd move_out_of_the_way(base::UniqueFd fd) {
  const int copy = base::sys.fcntl(fd.get(), F_DUPFD_CLOEXEC, base::high_number());
  return copy >= 0 ? base::UniqueFd(copy) : std::move(fd);
}

// A limit on files would answer ftruncate with a signal.
bool may_have_file(size_t size) {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= size;
}

Path path_of(uint32_t pid, uint32_t fd) {
  Path path;
  snprintf(path.data(), path.size(), "/proc/%u/fd/%u", pid, fd);
  return path;
}

// All memfds lie on one file system of the kernel's own, on which nothing else can be opened. Asked
// once a process; 0 if there are none.
// musl has no such function before 1.2.5, and must be able to load this library (shim/runtime.cpp).
bool read_statx(int fd, int flags, struct statx& st) {
  return base::kernel_call(SYS_statx, fd, "", AT_EMPTY_PATH | flags, STATX_TYPE, &st) == 0;
}
uint64_t device_of(const struct statx& st) {
  return uint64_t{st.stx_dev_major} << 32 | st.stx_dev_minor;
}
uint64_t device_of_memfds() {
  static constinit std::atomic<uint64_t> known{0};
  if (const uint64_t device = known.load(std::memory_order_relaxed); device != 0) return device;
  const base::UniqueFd fd(memfd_create("ddpsock-probe", MFD_CLOEXEC));
  struct statx st;
  if (!fd.is_valid() || !read_statx(fd.get(), 0, st)) return 0;
  known.store(device_of(st), std::memory_order_relaxed);
  return device_of(st);
}

Result<base::UniqueFd> make_memory_file(const char* name, size_t size) {
  if (!may_have_file(size)) return fail_errno(EFBIG);
  base::UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_valid()) return fail_errno(errno);
  fd = move_out_of_the_way(std::move(fd));
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return fail_errno(errno);
  return fd;
}

}  // namespace

Result<base::UniqueFd> make_sealed_file(const char* name, size_t size) {
  auto fd = make_memory_file(name, size);
  if (fd && fcntl(fd->get(), F_ADD_SEALS, kSeals) != 0) return fail_errno(errno);
  return fd;
}

// What is mapped to write before such a seal stays so.
Result<MappedFile> make_mapped_file(const char* name, size_t size, bool is_for_readers) {
  auto file = make_memory_file(name, size);
  if (!file) return fail(file.error());
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (at == MAP_FAILED) return fail_errno(errno);
  madvise(at, size, MADV_DONTFORK);
  if (fcntl(file->get(), F_ADD_SEALS, kSeals | (is_for_readers ? F_SEAL_FUTURE_WRITE : 0)) != 0) {
    const int error = errno;
    munmap(at, size);
    return fail_errno(error);
  }
  return MappedFile{std::move(*file), static_cast<uint8_t*>(at)};
}

// Opening is not harmless for every kind of file (a device, a FIFO, a server's in user space), and
// what a number stands for may change at any time. So the file is named first, without opening it
// and without a question to whoever serves it, looked at, and then that very file is opened.
Result<base::UniqueFd> open_memory_file(uint32_t pid, uint32_t fd) {
  const auto open_path = [](const Path& path, int flags) {
    return base::UniqueFd(static_cast<int>(
        base::kernel_call(SYS_openat, AT_FDCWD, path.data(), flags | O_CLOEXEC | O_NONBLOCK, 0)));
  };
  const base::UniqueFd name = open_path(path_of(pid, fd), O_PATH);
  if (!name.is_valid()) return fail_errno(errno);
  struct statx st;
  if (!read_statx(name.get(), AT_STATX_DONT_SYNC, st)) return fail_errno(errno);
  const uint64_t device = device_of_memfds();
  if (device == 0 || device_of(st) != device) return fail_errno(EPROTO);
  Path path;
  snprintf(path.data(), path.size(), "/proc/self/fd/%d", name.get());
  base::UniqueFd file = open_path(path, O_RDWR);
  if (!file.is_valid()) return fail_errno(errno);
  return file;
}

bool is_sealed_file(int fd, size_t size) {
  struct stat st;
  if (base::kernel::fstat(fd, st) != 0 || !S_ISREG(st.st_mode)) return false;
  if (st.st_uid != base::kernel::geteuid() || st.st_size != static_cast<off_t>(size)) return false;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

Result<base::UniqueFd> open_sealed_file(uint32_t pid, uint32_t fd, size_t size) {
  auto file = open_memory_file(pid, fd);
  if (file && !is_sealed_file(file->get(), size)) return fail_errno(EPROTO);
  return file;
}

Result<uint8_t*> map_sealed_file(int fd, size_t size) {
  void* p = base::map_sparse(size, fd);
  if (p == nullptr) return fail_errno(errno);
  return static_cast<uint8_t*>(p);
}

Result<const uint8_t*> map_for_reading(int fd, size_t size) {
  void* p = base::map_sparse(size, fd, 0, PROT_READ);
  if (p == nullptr) return fail_errno(errno);
  madvise(p, size, MADV_DONTFORK);
  return static_cast<const uint8_t*>(p);
}

bool populate(void* from, size_t size, bool is_to_write) {
  return madvise(from, size, is_to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
}

FileId file_of(int fd) {
  struct stat st;
  return fd >= 0 && base::kernel::fstat(fd, st) == 0 ? FileId{st.st_dev, st.st_ino} : FileId{};
}

}  // namespace ddpsock::engine::shm
