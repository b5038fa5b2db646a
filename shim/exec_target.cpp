// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/exec_target.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "shim/real.h"

namespace ddpsock::shim {
namespace {

// True if `fd` is an ELF program that names no dynamic linker.
bool is_static(int fd) {
  Elf64_Ehdr header;
  if (pread(fd, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) return false;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    const auto offset = static_cast<off_t>(header.e_phoff + uint64_t{i} * header.e_phentsize);
    if (pread(fd, &part, sizeof(part), offset) != static_cast<ssize_t>(sizeof(part))) return false;
    if (part.p_type == PT_INTERP) return false;
  }
  return true;
}

bool changes_user(const struct stat& file) {
  return ((file.st_mode & S_ISUID) != 0 && file.st_uid != geteuid()) ||
         ((file.st_mode & S_ISGID) != 0 && file.st_gid != getegid());
}

}  // namespace

const char* why_not_preloaded(int directory, const char* path) {
  if (path == nullptr || strchr(path, '/') == nullptr) return nullptr;
  const int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat file;
  const char* why = nullptr;
  if (fstat(fd, &file) == 0 && changes_user(file)) {
    why = "the program runs as another user";
  } else if (is_static(fd)) {
    why = "the program is static";
  }
  real.close(fd);
  return why;
}

}  // namespace ddpsock::shim
