// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/exec_target.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/fd.h"
#include "base/kernel_call.h"
#include "base/kernel_view.h"

namespace ddpsock::shim {
namespace {

constexpr char kShell[] = "/bin/sh";  // interprets what is neither ELF nor names an interpreter
constexpr const char kStatic[] = "the program is static";
constexpr const char kAnotherUsers[] = "the program runs as another user";
constexpr const char kUnreadable[] = "the program cannot be read";
constexpr const char kUntold[] = "the program cannot be told";
constexpr int kMostInterpreters = 5;  // of interpreters, as the kernel has it
using Path = std::array<char, PATH_MAX>;
using Head = std::array<char, 256>;  // as much as the kernel reads of a script

// A FIFO or a device would keep us waiting.
int open_to_look(int directory, const Path& path) {
  return openat(directory, path.data(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

// True if `fd` is an ELF program that names no dynamic linker. `header` must be of this class.
bool is_static(int fd, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    const auto offset = static_cast<off_t>(header.e_phoff + uint64_t{i} * header.e_phentsize);
    if (pread(fd, &part, sizeof(part), offset) != static_cast<ssize_t>(sizeof(part))) return false;
    if (part.p_type == PT_INTERP) return false;
  }
  return true;
}

bool changes_user(const struct stat& file) {
  return ((file.st_mode & S_ISUID) != 0 && file.st_uid != base::kernel::geteuid()) ||
         ((file.st_mode & S_ISGID) != 0 && file.st_gid != base::kernel::getegid());
}

// Of a file that may be executed and not read, as sudo on some systems.
const char* judge_unreadable(int directory, const Path& path) {
  struct stat file;
  const bool is_seen = base::kernel_call(SYS_newfstatat, directory, path.data(), &file, 0) == 0;
  return is_seen && S_ISREG(file.st_mode) && changes_user(file) ? kAnotherUsers : kUnreadable;
}

// The interpreter that a script's first line names. False: it is no script.
bool read_interpreter(const Head& head, size_t size, Path& interpreter) {
  std::string_view line(head.data(), size);
  if (!line.starts_with("#!")) return false;
  line = line.substr(2, line.find('\n') - 2);
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == line.npos) return false;
  line = line.substr(begin);
  line = line.substr(0, line.find_first_of(" \t"));
  interpreter[line.copy(interpreter.data(), interpreter.size() - 1)] = '\0';
  return true;
}

// Null and `next` set: it depends on that program. Null and not: what exec refuses.
const char* judge(int fd, Path& next) {
  struct stat file{};
  if (base::kernel::fstat(fd, file) == 0 && !S_ISREG(file.st_mode)) return nullptr;
  Head head{};
  const ssize_t size = pread(fd, head.data(), head.size(), 0);
  if (size < 0) return kUnreadable;
  if (std::memcmp(head.data(), ELFMAG, SELFMAG) != 0) {
    if (!read_interpreter(head, static_cast<size_t>(size), next)) strcpy(next.data(), kShell);
    return nullptr;
  }
  if (changes_user(file) || base::kernel::fgetxattr(fd, "security.capability", nullptr, 0) > 0)
    return kAnotherUsers;
  if (head[EI_CLASS] != ELFCLASS64) return "the program is of another kind of machine";
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof header);
  return is_static(fd, header) ? kStatic : nullptr;
}

// As exec does it; false if there is none.
bool find_in_path(const char* name, Path& found) {
  const char* path = getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/bin:/usr/bin";
  const std::string_view file(name);
  for (bool is_last = false; !is_last;) {
    const size_t end = rest.find(':');
    is_last = end == rest.npos;
    const std::string_view folder = rest.substr(0, end);
    rest = is_last ? rest : rest.substr(end + 1);
    if (folder.size() + file.size() + 2 > found.size()) continue;
    char* at = found.data() + folder.copy(found.data(), folder.size());
    if (!folder.empty()) *at++ = '/';
    at[file.copy(at, file.size())] = '\0';
    struct stat st;
    if (base::kernel::is_executable(found.data()) && base::kernel::stat(found.data(), st) == 0 &&
        S_ISREG(st.st_mode))
      return true;
  }
  return false;
}

// Where exec looks, from `target.directory`; false if there is none.
bool resolve(const ExecTarget& target, Path& path) {
  if (target.path == nullptr) return false;
  if (target.is_searched && strchr(target.path, '/') == nullptr)
    return find_in_path(target.path, path);
  if (strlen(target.path) >= path.size()) return false;
  strcpy(path.data(), target.path);
  return true;
}

}  // namespace

bool may_be_executed(const ExecTarget& target) {
  Path path;
  if (!resolve(target, path)) return false;
  int directory = target.directory;
  for (int i = 0; i < kMostInterpreters; ++i) {
    const bool is_file_itself = path[0] == '\0';
    struct stat file;  // asked for without a descriptor, of which there may be none left
    const int how = is_file_itself ? AT_EMPTY_PATH : 0;
    if (base::kernel_call(SYS_newfstatat, directory, path.data(), &file, how) != 0 ||
        !S_ISREG(file.st_mode) ||
        (!is_file_itself && !base::kernel::is_executable(path.data(), directory)))
      return false;
    const int fd = is_file_itself ? directory : open_to_look(directory, path);
    if (fd < 0) return true;  // nothing speaks against it
    Head head{};
    const ssize_t size = pread(fd, head.data(), head.size(), 0);
    if (fd != target.directory) base::close_own(fd);
    if (size < 0) return true;
    const std::string_view text(head.data(), static_cast<size_t>(size));
    if (!text.starts_with("#!")) return target.is_searched || text.find('\0') != text.npos;
    // Exec asks the same of what it names.
    if (!read_interpreter(head, text.size(), path)) return false;
    directory = AT_FDCWD;
  }
  return false;
}

const char* why_not_preloaded(const ExecTarget& target) {
  Path path;
  if (!resolve(target, path)) return nullptr;
  const bool is_file_itself = path[0] == '\0';
  int directory = target.directory;
  for (int i = 0; i < kMostInterpreters; ++i) {
    const int fd = i == 0 && is_file_itself ? directory : open_to_look(directory, path);
    if (fd < 0)
      return errno == ENOENT || errno == ENOTDIR ? nullptr : judge_unreadable(directory, path);
    path[0] = '\0';
    const char* why = judge(fd, path);
    if (fd != target.directory) base::close_own(fd);
    if (why != nullptr || path[0] == '\0') return why;
    directory = AT_FDCWD;
  }
  return kUntold;
}

bool is_doubtful(const char* why_not_preloaded) {
  return why_not_preloaded == kUnreadable || why_not_preloaded == kUntold;
}

}  // namespace ddpsock::shim
