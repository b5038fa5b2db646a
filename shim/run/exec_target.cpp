// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/exec_target.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
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
#include "shim/run/elf_machine.h"

namespace ddpsock::shim {
namespace {

constexpr char kShell[] = "/bin/sh";  // interprets what is neither ELF nor names an interpreter
constexpr const char kStatic[] = "the program is static";
constexpr const char kAnotherUsers[] = "the program runs as another user";
constexpr const char kUnreadable[] = "the program cannot be read";
constexpr const char kAnotherMachines[] = "the program is of another kind of machine";
constexpr const char kUntold[] = "the program cannot be told";
constexpr int kMostFiles = 6;  // the program and those that interpret, as the kernel has it
using Path = std::array<char, PATH_MAX>;
using Head = std::array<char, 256>;  // as much as the kernel reads of a script

// True if `fd` is an ELF program that names no dynamic linker. `header` must be of this class.
bool is_static(int fd, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    const auto offset = static_cast<off_t>(header.e_phoff + uint64_t{i} * header.e_phentsize);
    if (base::kernel::pread(fd, &part, sizeof(part), offset) != static_cast<ssize_t>(sizeof(part)))
      return false;
    if (part.p_type == PT_INTERP) return false;
  }
  return true;
}

// A look at a file that exec would take. `fd`: -1 if it may not be read, or none is left.
struct Seen {
  int directory;
  const char* path;  // "": `directory` is the file
  struct stat file;
  int fd;
};

bool has_capabilities(const Seen& seen) {
  constexpr char kName[] = "security.capability";
  if (seen.fd >= 0) return base::kernel::fgetxattr(seen.fd, kName, nullptr, 0) > 0;
  const bool is_named = seen.path[0] == '/' || (seen.path[0] != '\0' && seen.directory == AT_FDCWD);
  return is_named && base::kernel::getxattr(seen.path, kName, nullptr, 0) > 0;
}

bool is_nosuid(const Seen& seen) {
  struct statfs where;
  const long result = seen.fd >= 0 ? base::kernel_call(SYS_fstatfs, seen.fd, &where)
                                   : base::kernel_call(SYS_statfs, seen.path, &where);
  return result == 0 && (where.f_flags & ST_NOSUID) != 0;
}

// A process that has given up new privileges keeps its user; but a file's capabilities keep the
// dynamic linker from preloading there too.
bool changes_user(const Seen& seen) {
  const struct stat& file = seen.file;
  const mode_t mode = file.st_mode;
  const bool is_set_id =
      ((mode & S_ISUID) != 0 && file.st_uid != base::kernel::geteuid()) ||
      ((mode & S_ISGID) != 0 && (mode & S_IXGRP) != 0 && file.st_gid != base::kernel::getegid());
  const bool counts = is_set_id && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
  return (counts || has_capabilities(seen)) && !is_nosuid(seen);
}

// Does the kernel perhaps know what runs files of other formats, and of other machines?
bool has_other_formats() {
  struct stat file;
  return base::kernel::stat("/proc/sys/fs/binfmt_misc/register", file) == 0;
}

bool can_run_on_this_machine(const Head& head) {
  Elf32_Ehdr header;  // as far as is asked for, both classes are the same
  std::memcpy(&header, head.data(), sizeof header);
  return header.e_machine == kMachine || header.e_machine == kMachineOf32Bits;
}

// The interpreter that a script's first line names. False: it is no script.
bool read_interpreter(std::string_view line, Path& interpreter) {
  if (!line.starts_with("#!")) return false;
  line = line.substr(2, line.find('\n') - 2);
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == line.npos) return false;
  line = line.substr(begin);
  line = line.substr(0, line.find_first_of(" \t"));
  interpreter[line.copy(interpreter.data(), interpreter.size() - 1)] = '\0';
  return true;
}

const char* judge_elf(const Seen& seen, const Head& head) {
  if (changes_user(seen)) return kAnotherUsers;
  if (head[EI_CLASS] != ELFCLASS64) return kAnotherMachines;
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof header);
  return is_static(seen.fd, header) ? kStatic : nullptr;
}

// `next` set: it depends on that program.
ExecOutlook judge(const Seen& seen, bool has_shell, Path& next) {
  Head head{};
  const ssize_t size = seen.fd < 0 ? -1 : base::kernel::pread(seen.fd, head.data(), head.size(), 0);
  if (size < 0) return {true, changes_user(seen) ? kAnotherUsers : kUnreadable};
  if (std::memcmp(head.data(), ELFMAG, SELFMAG) == 0) {
    if (can_run_on_this_machine(head)) return {true, judge_elf(seen, head)};
    // Where /proc is not whole the kernel may know what runs it all the same.
    return {has_other_formats(), kAnotherMachines};
  }
  const std::string_view text(head.data(), static_cast<size_t>(size));
  if (read_interpreter(text, next)) return {true, nullptr};
  const bool is_text = text.find('\0') == text.npos;
  if (!has_shell && (is_text || !has_other_formats())) return {false, nullptr};
  strcpy(next.data(), kShell);
  return {true, nullptr};
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

// Is it a file to execute? Without a descriptor, of which there may be none left; what a filter of
// system calls forbids to ask does not say no.
static bool see(Seen& seen) {
  const auto is_no = [] { return errno != EPERM && errno != ENOSYS; };
  const bool is_file_itself = seen.path[0] == '\0';
  const int how = is_file_itself ? AT_EMPTY_PATH : 0;
  if (base::kernel_call(SYS_newfstatat, seen.directory, seen.path, &seen.file, how) != 0)
    return !is_no();
  return S_ISREG(seen.file.st_mode) &&
         (is_file_itself || base::kernel::is_executable(seen.path, seen.directory) || !is_no());
}

ExecOutlook look_at(const ExecTarget& target) {
  Path path;
  if (!resolve(target, path)) return {false, nullptr};
  int directory = target.directory;
  for (int i = 0; i < kMostFiles; ++i) {
    Path next{};
    Seen seen{directory, path.data(), {}, -1};
    if (!see(seen)) return {false, nullptr};
    const bool is_file_itself = path[0] == '\0';
    seen.fd = is_file_itself
                  ? directory
                  : base::kernel::openat(directory, path.data(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ExecOutlook outlook = judge(seen, target.has_shell, next);
    if (seen.fd >= 0 && !is_file_itself) base::close_own(seen.fd);
    if (next[0] == '\0') return outlook;
    path = next;
    directory = AT_FDCWD;
  }
  return {true, kUntold};
}

bool is_doubtful(const char* why_not_preloaded) {
  return why_not_preloaded == kUnreadable || why_not_preloaded == kUntold;
}

}  // namespace ddpsock::shim
