// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/stat/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "relatives/arena_layout.h"

namespace ddpsock::stat {
namespace {

// As the kernel names a memfd, in links and maps.
const std::string kArenaLink = std::string("/memfd:") + engine::kArenaName + " (deleted)";
constexpr std::string_view kRingLink = "anon_inode:[io_uring]";
constexpr std::string_view kLibrary = "/libddpsock.so", kRingLibrary = "/liburing.so";
// Of a text of /proc; maps grow with each connection in shared memory.
constexpr size_t kMostText = 64 << 20;

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

Folder open_folder(int fd) {
  DIR* folder = fd >= 0 ? fdopendir(fd) : nullptr;
  if (folder == nullptr && fd >= 0) close(fd);
  return {folder, closedir};
}

std::optional<int> number_of(std::string_view name) {
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

std::string read_text(int folder, const char* name) {
  const base::UniqueFd fd(openat(folder, name, O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!fd.is_valid()) return text;
  char piece[16384];
  for (ssize_t n; text.size() < kMostText && (n = read(fd.get(), piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<size_t>(n));
  return text;
}

FileId id_of(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 ? FileId{st.st_dev, st.st_ino} : FileId{};
}

// The link's name is looked at first: opening is not harmless for every kind of file.
base::UniqueFd open_arena(DIR* descriptors, bool& has_ring) {
  char link[64];
  while (const dirent* entry = readdir(descriptors)) {
    const ssize_t n = readlinkat(dirfd(descriptors), entry->d_name, link, sizeof link);
    if (n < 0) continue;
    const std::string_view target(link, static_cast<size_t>(n));
    has_ring |= target == kRingLink;
    if (target != kArenaLink) continue;
    base::UniqueFd fd(
        openat(dirfd(descriptors), entry->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd.is_valid()) return fd;
  }
  return {};
}

enum class Found { kYes, kNo, kHidden };

Found examine(int folder, int pid, Process& process) {
  Status status;
  if (!parse_status(read_text(folder, "status"), status) || status.uid != geteuid())
    return Found::kNo;
  process.pid = pid;
  process.pid_inside = status.pid_inside;
  process.program = status.program;
  const Folder descriptors = open_folder(openat(folder, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptors == nullptr) return errno == EACCES ? Found::kHidden : Found::kNo;
  process.arena_fd = open_arena(descriptors.get(), process.has_ring);
  if (process.arena_fd.is_valid()) {
    process.arena = id_of(process.arena_fd.get());
    return Found::kYes;
  }
  // Not before: this holds the process up for a moment if it has many mappings.
  const Maps maps = parse_maps(read_text(folder, "maps"));
  process.has_ring |= maps.has_ring_library;
  process.arena = maps.arena;
  process.is_mapped = process.has_arena();
  return maps.has_library || process.is_mapped ? Found::kYes : Found::kNo;
}

}  // namespace

bool parse_status(const std::string& text, Status& status) {
  std::istringstream lines(text);
  bool has_name = false, has_uid = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "Name:") {
      status.program = line.substr(std::min(line.size(), line.find('\t') + 1));
      has_name = true;
    } else if (key == "Uid:") {
      uid_t real = 0;
      has_uid = static_cast<bool>(words >> real >> status.uid);
    } else if (key == "Pid:" || key == "NSpid:") {
      // Of NSpid the last: one a namespace, from ours down.
      while (words >> status.pid_inside) continue;
      words.clear();
    }
  }
  return has_name && has_uid && status.pid_inside > 0;
}

Maps parse_maps(const std::string& text) {
  Maps maps;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find(kLibrary) != line.npos) maps.has_library = true;
    if (line.find(kRingLibrary) != line.npos) maps.has_ring_library = true;
    if (!line.ends_with(kArenaLink)) continue;
    unsigned device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    if (sscanf(line.c_str(), "%*s %*s %*s %x:%x %lu", &device_major, &device_minor, &inode) == 3)
      maps.arena = {makedev(device_major, device_minor), inode};
  }
  return maps;
}

bool scan_processes(Scan& scan) {
  const Folder proc = open_folder(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (proc == nullptr) return false;
  while (const dirent* entry = readdir(proc.get())) {
    const auto pid = number_of(entry->d_name);
    if (!pid || *pid == getpid()) continue;
    const base::UniqueFd folder(
        openat(dirfd(proc.get()), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.is_valid()) continue;
    Process process;
    switch (examine(folder.get(), *pid, process)) {
      case Found::kYes:
        scan.processes.push_back(std::move(process));
        break;
      case Found::kHidden:
        ++scan.hidden;
        break;
      case Found::kNo:
        break;
    }
  }
  std::ranges::sort(scan.processes, {}, &Process::pid);
  return true;
}

}  // namespace ddpsock::stat
