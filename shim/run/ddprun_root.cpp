// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "shim/run/ddprun_failure.h"

namespace ddpsock::shim {
namespace {

constexpr size_t kMostText = 1 << 20;  // of a unit file, as systemd has it

std::string link_of(int fd) {
  char path[PATH_MAX];
  const std::string name = fmt::format("/proc/self/fd/{}", fd);
  const ssize_t n = readlink(name.c_str(), path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "";
}

}  // namespace

Root::Root(const std::string& path)
    : is_image_(false), fd_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (!fd_.is_valid()) stop("{}: {}", path, strerror(errno));
  if (path == "/") return;
  path_ = link_of(fd_.get());
  if (path_.empty()) stop("{}: /proc is needed", path);
  is_image_ = path_ != "/";
  if (!is_image_) path_.clear();
}

std::string Root::outside(const std::string& path) const {
  return path_ + path;
}

base::UniqueFd Root::open(const std::string& path, int flags) const {
  // This system needs no openat2(2), which containers may forbid.
  if (!is_image_) return base::UniqueFd(::open(path.c_str(), flags | O_CLOEXEC));
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT;
  return base::UniqueFd(
      static_cast<int>(syscall(SYS_openat2, fd_.get(), path.c_str(), &how, sizeof how)));
}

std::optional<std::string> Root::read(const std::string& path) const {
  // A FIFO or a device would keep us waiting.
  const base::UniqueFd fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd.is_valid()) return std::nullopt;
  std::string text;
  char piece[16384];
  ssize_t n;
  while (text.size() < kMostText && (n = ::read(fd.get(), piece, sizeof piece)) > 0)
    text.append(piece, static_cast<size_t>(n));
  if (n < 0) return std::nullopt;
  return text;
}

std::vector<std::string> Root::list(const std::string& path) const {
  base::UniqueFd fd = open(path, O_RDONLY | O_DIRECTORY);
  std::vector<std::string> names;
  if (!fd.is_valid()) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd.get()), closedir);
  if (folder == nullptr) return names;
  (void)fd.release();
  while (const dirent* entry = readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::string Root::real_path(const std::string& path) const {
  const base::UniqueFd fd = open(path, O_PATH);
  if (!fd.is_valid()) return "";
  const std::string whole = link_of(fd.get());
  return whole.starts_with(path_) ? whole.substr(path_.size()) : "";
}

bool Root::exists(const std::string& path) const {
  return open(path, O_PATH).is_valid();
}

std::optional<Root::User> Root::find_user(const std::string& name) const {
  uid_t number = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, number);
  const bool is_number = error == std::errc{} && rest == end;
  const auto text = read("/etc/passwd").value_or("");
  const std::unique_ptr<FILE, int (*)(FILE*)> file(
      fmemopen(const_cast<char*>(text.data()), text.size(), "r"), fclose);
  while (const passwd* entry = file != nullptr ? fgetpwent(file.get()) : nullptr)
    if (is_number ? entry->pw_uid == number : entry->pw_name == name)
      return User{entry->pw_uid, entry->pw_gid};
  // Not of files (LDAP, systemd's own).
  if (const passwd* entry = is_image_ || is_number ? nullptr : getpwnam(name.c_str()))
    return User{entry->pw_uid, entry->pw_gid};
  if (is_number) return User{number, static_cast<gid_t>(number)};
  return std::nullopt;
}

}  // namespace ddpsock::shim
