// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_target.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <expected>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "shim/policy/rings.h"
#include "shim/run/elf_machine.h"

namespace ddpsock::shim {
namespace {

constexpr int kMostInterpreters = 4;        // the kernel's own limit (BINPRM_MAX_RECURSION)
constexpr size_t kInterpreterLine = 256;    // likewise (BINPRM_BUF_SIZE)
constexpr size_t kMostTable = 1024 * 1024;  // of program headers, notes or section names

using Reason = std::optional<std::string>;  // why not covered

std::vector<char> read_at(int fd, uint64_t offset, uint64_t size) {
  std::vector<char> bytes(std::min<uint64_t>(size, kMostTable));
  const ssize_t n = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

template <typename T>
std::vector<T> read_table(int fd, uint64_t offset, size_t count) {
  const std::vector<char> bytes = read_at(fd, offset, count * sizeof(T));
  std::vector<T> table(bytes.size() / sizeof(T));
  if (!table.empty()) std::memcpy(table.data(), bytes.data(), table.size() * sizeof(T));
  return table;
}

constexpr size_t align4(size_t n) {
  return (n + 3) & ~size_t{3};
}

// A note by the Go linker, .note.go.buildid.
bool has_go_note(std::span<const char> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data(), sizeof note);
    notes = notes.subspan(sizeof note);
    const size_t whole = align4(note.n_namesz) + align4(note.n_descsz);
    if (note.n_namesz > notes.size() || whole > notes.size()) return false;
    if (note.n_namesz == 4 && std::memcmp(notes.data(), "Go\0", 4) == 0) return true;
    notes = notes.subspan(whole);
  }
  return false;
}

bool has_go_section(int fd, const ElfW(Ehdr) & header) {
  if (header.e_shentsize != sizeof(ElfW(Shdr))) return false;
  const auto sections = read_table<ElfW(Shdr)>(fd, header.e_shoff, header.e_shnum);
  if (header.e_shstrndx >= sections.size()) return false;
  const auto& strings = sections[header.e_shstrndx];
  const std::vector<char> names = read_at(fd, strings.sh_offset, strings.sh_size);
  return std::ranges::any_of(sections, [&](const ElfW(Shdr) & s) {
    if (s.sh_name >= names.size()) return false;
    const size_t most = names.size() - s.sh_name;
    const std::string_view name(&names[s.sh_name], strnlen(&names[s.sh_name], most));
    return name == ".go.buildinfo" || name == ".note.go.buildid";
  });
}

// Where in the file lies what is loaded at `address`; 0: nowhere.
uint64_t offset_of(std::span<const ElfW(Phdr)> parts, uint64_t address) {
  for (const ElfW(Phdr) & part : parts)
    if (part.p_type == PT_LOAD && address >= part.p_vaddr && address - part.p_vaddr < part.p_filesz)
      return part.p_offset + (address - part.p_vaddr);
  return 0;
}

// Does the program name a library that begins so among those it needs?
bool needs_library(int fd, std::span<const ElfW(Phdr)> parts, std::string_view beginning) {
  std::vector<ElfW(Dyn)> entries;
  for (const ElfW(Phdr) & part : parts)
    if (part.p_type == PT_DYNAMIC)
      entries = read_table<ElfW(Dyn)>(fd, part.p_offset, part.p_filesz / sizeof(ElfW(Dyn)));
  uint64_t at = 0, size = 0;
  for (const ElfW(Dyn) & entry : entries) {
    if (entry.d_tag == DT_STRTAB) at = offset_of(parts, entry.d_un.d_ptr);
    if (entry.d_tag == DT_STRSZ) size = entry.d_un.d_val;
  }
  const std::vector<char> names = read_at(fd, at, size);
  return std::ranges::any_of(entries, [&](const ElfW(Dyn) & entry) {
    if (entry.d_tag != DT_NEEDED || entry.d_un.d_val >= names.size()) return false;
    const char* name = &names[entry.d_un.d_val];
    const size_t most = names.size() - entry.d_un.d_val;
    return std::string_view(name, strnlen(name, most)).starts_with(beginning);
  });
}

Reason examine_headers(int fd, const ElfW(Ehdr) & header, bool has_files_only) {
  if (header.e_phentsize != sizeof(ElfW(Phdr))) return "its ELF program headers are malformed";
  bool is_go = has_go_section(fd, header);
  std::string loader;
  const auto parts = read_table<ElfW(Phdr)>(fd, header.e_phoff, header.e_phnum);
  for (const ElfW(Phdr) & part : parts) {
    if (part.p_type == PT_INTERP) {
      const std::vector<char> path = read_at(fd, part.p_offset, part.p_filesz);
      loader.assign(path.data(), strnlen(path.data(), path.size()));
    }
    if (part.p_type == PT_NOTE)
      is_go = is_go || has_go_note(read_at(fd, part.p_offset, part.p_filesz));
  }
  if (is_go) return "it is a Go program, which calls the kernel without libc";
  if (loader.empty()) return "it is statically linked, so nothing can be preloaded";
  if (loader.find("ld-musl") != loader.npos)
    return "it uses musl, and the library is built for glibc";
  const char* word = getenv("DDPSOCK_IO_URING");
  const bool is_excepted = has_files_only || (word != nullptr && std::strcmp(word, "files") == 0);
  if (!is_excepted && needs_library(fd, parts, kRingLibrary))
    return fmt::format(
        "it needs {}, so it is taken to do its socket I/O by io_uring, past libc "
        "(DDPSOCK_IO_URING=files says that it does not)",
        kRingLibrary);
  return {};
}

Reason examine_elf(int fd, const Target& target) {
  const auto headers = read_table<ElfW(Ehdr)>(fd, 0, 1);
  if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0)
    return "it is neither an ELF file nor a script with a #! line";
  const ElfW(Ehdr)& header = headers[0];
  constexpr unsigned kClass = __ELF_NATIVE_CLASS == 64 ? ELFCLASS64 : ELFCLASS32;
  if (header.e_ident[EI_CLASS] != kClass)
    return fmt::format("it is not a {}-bit program as the library is", __ELF_NATIVE_CLASS);
  if (header.e_machine != kMachine) return "it is built for another machine";
  return examine_headers(
      fd, header, has_rings_for_files_only(target.path) || has_rings_for_files_only(target.binary));
}

// The kernel sets AT_SECURE, and the loader then drops LD_PRELOAD, when exec changes identity.
Reason examine_privilege(int fd, const Place& place) {
  struct stat st;
  if (fstat(fd, &st) != 0) return {};
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != place.uid) return "it is setuid";
  if ((st.st_mode & S_ISGID) != 0 && (st.st_mode & S_IXGRP) != 0 && st.st_gid != place.gid)
    return "it is setgid";
  if (place.uid != 0 && fgetxattr(fd, "security.capability", nullptr, 0) > 0)
    return "it has file capabilities";
  return {};
}

// 0 if `path` can be executed there, else why not. Of an image, or for another user, by somebody.
int check_executable(const std::string& path, const Place& place) {
  struct stat st;
  const base::UniqueFd fd = place.root.open(path, O_PATH);
  if (!fd.is_valid() || fstat(fd.get(), &st) != 0) return errno;
  if (!S_ISREG(st.st_mode)) return EACCES;
  const bool is_own = !place.root.is_image() && place.uid == getuid();
  if (is_own) return access(path.c_str(), X_OK) == 0 ? 0 : EACCES;
  return (st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0 ? 0 : EACCES;
}

// Where execvp would find `name`; an errno value if nowhere.
std::expected<std::string, int> resolve(const std::string& name, const Place& place) {
  const auto check = [&](const std::string& path) { return check_executable(path, place); };
  if (name.empty()) return std::unexpected(ENOENT);
  if (name.find('/') != name.npos) {
    if (const int error = check(name)) return std::unexpected(error);
    return name;
  }
  std::string_view rest = place.search_path;
  int worst = ENOENT;
  while (true) {
    const size_t end = rest.find(':');
    const std::string folder(rest.substr(0, end));
    const std::string path = folder.empty() ? name : folder + "/" + name;
    const int error = check(path);
    if (error == 0) return path;
    if (error == EACCES) worst = EACCES;
    if (end == rest.npos) return std::unexpected(worst);
    rest.remove_prefix(end + 1);
  }
}

std::string next_word(std::string_view& rest) {
  const size_t begin = std::min(rest.find_first_not_of(" \t"), rest.size());
  const size_t end = std::min(rest.find_first_of(" \t", begin), rest.size());
  std::string word(rest.substr(begin, end - begin));
  rest.remove_prefix(end);
  return word;
}

// The program that a #! line starts; empty if `fd` has none. What env(1) starts is looked up too.
std::string read_interpreter(int fd, const Place& place) {
  const std::vector<char> head = read_at(fd, 0, kInterpreterLine);
  std::string_view line(head.data(), head.size());
  if (!line.starts_with("#!")) return {};
  line = line.substr(2, line.find('\n') - 2);
  const std::string program = next_word(line);
  if (!program.ends_with("/env")) return program;
  for (std::string word = next_word(line); !word.empty(); word = next_word(line)) {
    if (word.starts_with('-') || word.find('=') != word.npos) continue;
    const auto found = resolve(word, place);
    return found ? *found : program;
  }
  return program;
}

Target not_covered(Target target, std::string reason) {
  target.finding = Target::Finding::kNotCovered;
  target.reason = std::move(reason);
  return target;
}

// glibc's; musl's takes other options, and its programs are not covered anyhow.
bool is_loader(const std::string& binary, const Place& place) {
  const std::string path = place.root.real_path(binary);
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  return name.starts_with("ld-linux") || name.starts_with("ld64.so") || name == "ld.so";
}

// The words from the program on that the loader is told to start; empty if it is none.
std::span<const std::string> words_behind_loader(std::span<const std::string> words) {
  constexpr std::array kWithValue{
      "--library-path",      "--inhibit-rpath",       "--audit", "--preload", "--argv0",
      "--glibc-hwcaps-mask", "--glibc-hwcaps-prepend"};
  words = words.subspan(1);
  while (!words.empty() && words.front().starts_with("--")) {
    const bool has_value = std::ranges::find(kWithValue, words.front()) != kWithValue.end();
    words = words.subspan(std::min<size_t>(has_value ? 2 : 1, words.size()));
  }
  return words;
}

}  // namespace

Target examine_target(std::span<const std::string> words) {
  const char* path = getenv("PATH");
  const Root here;
  return examine_target(words,
                        {here, path != nullptr ? path : "/bin:/usr/bin", getuid(), getgid()});
}

Target examine_target(std::span<const std::string> words, const Place& place) {
  const std::string& command = words.front();
  Target target{Target::Finding::kCovered, command, "", ""};
  const auto found = resolve(command, place);
  if (!found) {
    target.finding = found.error() == ENOENT || found.error() == ENOTDIR
                         ? Target::Finding::kNotFound
                         : Target::Finding::kNotRunnable;
    target.reason = strerror(found.error());
    return target;
  }
  target.path = target.binary = *found;
  for (int depth = 0; depth <= kMostInterpreters; ++depth) {
    const base::UniqueFd fd = place.root.open(target.binary, O_RDONLY);
    // A program may be executable and not readable; nothing can be said of it then.
    if (!fd.is_valid())
      return not_covered(target,
                         fmt::format("{} cannot be read: {}", target.binary, strerror(errno)));
    const std::string interpreter = read_interpreter(fd.get(), place);
    if (interpreter.empty() && depth == 0 && is_loader(target.binary, place)) {
      // It opens what it starts itself: a name without slash is not looked up in PATH.
      const auto behind = words_behind_loader(words);
      if (behind.empty()) return not_covered(target, "it is the dynamic loader");
      target.binary = behind.front();
      continue;
    }
    if (interpreter.empty()) {
      Reason reason = examine_privilege(fd.get(), place);
      if (!reason) reason = examine_elf(fd.get(), target);
      return reason ? not_covered(target, *reason) : target;
    }
    target.binary = interpreter;
  }
  return not_covered(target, "its #! lines nest too deeply");
}

}  // namespace ddpsock::shim
