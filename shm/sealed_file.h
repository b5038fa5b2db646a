// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A memfd whose size nobody can change any more, made by one process and taken by another of the
// same user from /proc/PID/fd, which the kernel allows to no other user.
#ifndef DDPSOCK_SHM_SEALED_FILE_H_
#define DDPSOCK_SHM_SEALED_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/fd.h"
#include "base/result.h"

namespace ddpsock::engine::shm {

inline constexpr size_t kPage = 4096;
// Of a file's size, so that no sum with it wraps.
inline constexpr size_t kMostInFile = std::numeric_limits<size_t>::max() / 4;
// REQUIRES: length <= kMostInFile.
constexpr size_t whole_pages(size_t length) {
  return (length + kPage - 1) / kPage * kPage;
}

// Named `name`, close-on-exec, out of the way of programs. ENOSYS, EMFILE, ENFILE, ENOMEM, EFBIG.
Result<base::UniqueFd> make_sealed_file(const char* name, size_t size);

// The same, mapped whole by its maker, not for forked children; `is_for_readers`: nobody else can
// map it to write, nor write to it, from then on. EINVAL also: the kernel cannot (before
// Linux 5.1).
struct MappedFile {
  base::UniqueFd file;
  uint8_t* at = nullptr;  // the caller's to unmap
};
Result<MappedFile> make_mapped_file(const char* name, size_t size, bool is_for_readers);

// What process `pid` has open as `fd`, if it is a file in memory: nothing else is opened, nor is a
// question asked to whoever serves it. EACCES (another user, or a process that hides), ENOENT
// (gone, or another pid namespace), EPROTO (something else).
Result<base::UniqueFd> open_memory_file(uint32_t pid, uint32_t fd);

// Is it a file of this user, of this size for good?
bool is_sealed_file(int fd, size_t size);

// As open_memory_file() for a sealed one. EPROTO also: it is none, or not of this size.
Result<base::UniqueFd> open_sealed_file(uint32_t pid, uint32_t fd, size_t size);

// All of it, shared. ENOMEM.
Result<uint8_t*> map_sealed_file(int fd, size_t size);

// The same to look at alone, not for forked children. ENOMEM.
Result<const uint8_t*> map_for_reading(int fd, size_t size);

// Provides the memory behind whole pages; false if there is none, and then they must not be
// written: the kernel would answer with SIGBUS. Not `is_to_write`: only to be read.
bool populate(void* from, size_t size, bool is_to_write = true);

// Names the file behind a descriptor, whose number a program may have closed and used again.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};
FileId file_of(int fd);

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_SEALED_FILE_H_
