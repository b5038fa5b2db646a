// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Files and users as the kernel knows them, asked by the instruction (base/kernel_call.h).
// Libraries preloaded beside ours (fakeroot, uid_wrapper) replace libc's functions of these names:
// they answer for the program what is not so, and some hold a lock while they call us, which they
// would wait for.
//
// As libc's, but for the reference: 0, or -1 and errno. No cancellation points; async-signal-safe.
#ifndef DDPSOCK_BASE_KERNEL_VIEW_H_
#define DDPSOCK_BASE_KERNEL_VIEW_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/kernel_call.h"

namespace ddpsock::base::kernel {

inline int fstat(int fd, struct stat& status) {
  return static_cast<int>(kernel_call(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH));
}
inline int stat(const char* path, struct stat& status) {
  return static_cast<int>(kernel_call(SYS_newfstatat, AT_FDCWD, path, &status, 0));
}
inline int lstat(const char* path, struct stat& status) {
  return static_cast<int>(
      kernel_call(SYS_newfstatat, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW));
}
inline int openat(int directory, const char* path, int flags) {
  return static_cast<int>(kernel_call(SYS_openat, directory, path, flags));
}
inline ssize_t pread(int fd, void* to, size_t size, off_t offset) {
  return kernel_call(SYS_pread64, fd, to, size, offset);
}
inline int fchmod(int fd, mode_t mode) {
  return static_cast<int>(kernel_call(SYS_fchmod, fd, mode));
}
inline ssize_t getxattr(const char* path, const char* name, void* value, size_t size) {
  return kernel_call(SYS_getxattr, path, name, value, size);
}
inline ssize_t fgetxattr(int fd, const char* name, void* value, size_t size) {
  return kernel_call(SYS_fgetxattr, fd, name, value, size);
}

// May the effective user execute it? Where the kernel does not know that question, or a filter of
// system calls does not: the real one.
inline bool is_executable(const char* path, int directory = AT_FDCWD) {
  if (kernel_call(SYS_faccessat2, directory, path, X_OK, AT_EACCESS) == 0) return true;
  return (errno == ENOSYS || errno == EPERM) &&
         kernel_call(SYS_faccessat, directory, path, X_OK) == 0;
}

inline uid_t geteuid() {
  return static_cast<uid_t>(kernel_call(SYS_geteuid));
}
inline gid_t getegid() {
  return static_cast<gid_t>(kernel_call(SYS_getegid));
}
inline int getresuid(uid_t& real, uid_t& effective, uid_t& saved) {
  return static_cast<int>(kernel_call(SYS_getresuid, &real, &effective, &saved));
}
inline int getresgid(gid_t& real, gid_t& effective, gid_t& saved) {
  return static_cast<int>(kernel_call(SYS_getresgid, &real, &effective, &saved));
}

}  // namespace ddpsock::base::kernel

#endif  // DDPSOCK_BASE_KERNEL_VIEW_H_
