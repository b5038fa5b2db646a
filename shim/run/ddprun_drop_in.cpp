// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_drop_in.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "shim/run/ddprun_failure.h"
#include "shim/run/ddprun_unit.h"

namespace ddpsock::shim {
namespace {

constexpr std::string_view kHead = "# Written by ddprun, sum ";

std::string folder_of(const std::string& unit) {
  return fmt::format("{}/{}.d", kAdministratorsUnits, unit);
}

std::string with_head(const std::string& unit, const std::string& body) {
  const std::string rest = fmt::format(
      "# `ddprun disable {}` removes this file as long as nobody has changed it.\n{}", unit, body);
  const auto* bytes = reinterpret_cast<const uint8_t*>(rest.data());
  return fmt::format("{}{:08x}\n{}", kHead, base::crc32c({bytes, rest.size()}), rest);
}

bool is_as_written(std::string_view text) {
  const size_t end = text.find('\n');
  if (!text.starts_with(kHead) || end == text.npos) return false;
  const std::string_view rest = text.substr(end + 1);
  const auto* bytes = reinterpret_cast<const uint8_t*>(rest.data());
  return text.substr(kHead.size(), end - kHead.size()) ==
         fmt::format("{:08x}", base::crc32c({bytes, rest.size()}));
}

[[noreturn]] void stop_at(const Root& root, const std::string& path) {
  const int error = errno;
  stop("{}: {}{}", root.outside(path), strerror(error),
       error == EACCES || error == EPERM ? " (this needs root)" : "");
}

base::UniqueFd open_folder(const Root& root, const std::string& path) {
  return root.open(path, O_RDONLY | O_DIRECTORY);
}

base::UniqueFd make_folder(const Root& root, const std::string& unit) {
  const std::string path = folder_of(unit);
  base::UniqueFd folder = open_folder(root, path);
  if (folder.is_valid()) return folder;
  const base::UniqueFd above = open_folder(root, kAdministratorsUnits);
  if (!above.is_valid()) stop_at(root, kAdministratorsUnits);
  if (mkdirat(above.get(), (unit + ".d").c_str(), 0755) != 0 && errno != EEXIST)
    stop_at(root, path);
  folder = open_folder(root, path);
  if (!folder.is_valid()) stop_at(root, path);
  return folder;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

std::string drop_in_path(const std::string& unit) {
  return folder_of(unit) + "/" + kDropIn;
}

DropIn look_at_drop_in(const Root& root, const std::string& unit) {
  const std::string path = drop_in_path(unit);
  struct stat st;
  const base::UniqueFd fd = root.open(path, O_PATH | O_NOFOLLOW);
  if (!fd.is_valid() && errno != ENOENT && errno != ENOTDIR) stop_at(root, path);
  if (!fd.is_valid()) return DropIn::kNone;
  if (fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return DropIn::kEdited;
  const auto text = root.read(path);
  if (!text) stop_at(root, path);
  return is_as_written(*text) ? DropIn::kOurs : DropIn::kEdited;
}

bool write_drop_in(const Root& root, const std::string& unit, const std::string& body) {
  const std::string path = drop_in_path(unit);
  const std::string text = with_head(unit, body);
  if (root.read(path) == text) return false;
  const base::UniqueFd folder = make_folder(root, unit);
  // systemd reads *.conf only, so that one that is left behind means nothing.
  const std::string other = fmt::format(".{}.{}", kDropIn, getpid());
  unlinkat(folder.get(), other.c_str(), 0);
  const base::UniqueFd file(openat(folder.get(), other.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  const bool is_done = file.is_valid() && fchmod(file.get(), 0644) == 0 &&
                       write_all(file.get(), text) && fsync(file.get()) == 0 &&
                       renameat(folder.get(), other.c_str(), folder.get(), kDropIn) == 0;
  if (!is_done) {
    const int error = errno;
    unlinkat(folder.get(), other.c_str(), 0);
    errno = error;
    stop_at(root, path);
  }
  fsync(folder.get());
  return true;
}

void remove_drop_in(const Root& root, const std::string& unit) {
  const base::UniqueFd folder = open_folder(root, folder_of(unit));
  if (!folder.is_valid() || unlinkat(folder.get(), kDropIn, 0) != 0)
    stop_at(root, drop_in_path(unit));
  fsync(folder.get());
  const base::UniqueFd above = open_folder(root, kAdministratorsUnits);
  if (above.is_valid()) unlinkat(above.get(), (unit + ".d").c_str(), AT_REMOVEDIR);
}

}  // namespace ddpsock::shim
