// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_record.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fd.h"
#include "engine/wrap/capture_file.h"
#include "shim/run/ddprun_failure.h"

namespace ddpsock::shim {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kMode = 0600;
// Where ".PID" has room behind it.
constexpr size_t kLongestPath = PATH_MAX - 16;

RecordedFile make_file(const char* option, const std::string& given, Bytes header) {
  if (given.empty()) return {};
  std::error_code none;
  const std::string path = fs::absolute(given, none).string();
  if (path.size() > kLongestPath) stop("{}: {}: {}", option, given, strerror(ENAMETOOLONG));
  const auto refuse = [&](int error) { stop("{}: {}: {}", option, given, strerror(error)); };
  // A pipe would be waited for, and what it brings is not the program's to hear of.
  const base::UniqueFd fd(open(
      path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kMode));
  if (!fd.is_valid() && errno == ELOOP) stop("{}: {}: it is a symbolic link", option, given);
  if (!fd.is_valid()) refuse(errno);
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) refuse(errno);
  if (!S_ISREG(status.st_mode)) stop("{}: {}: not a regular file", option, given);
  if (status.st_uid != geteuid() || status.st_nlink != 1)
    stop("{}: {}: it is somebody else's, or has another name, too", option, given);
  if (ftruncate(fd.get(), 0) != 0) refuse(errno);
  if (fchmod(fd.get(), kMode) != 0) refuse(errno);
  // One octet of a trace, too, so that a full disk is known now; behind what it leaves there is
  // room for nothing.
  const uint8_t blank = '\n';
  const Bytes first = header.empty() ? Bytes(&blank, 1) : header;
  const auto before = signal(SIGXFSZ, SIG_IGN);
  const ssize_t n = write(fd.get(), first.data(), first.size());
  const int error = n < 0 ? errno : ENOSPC;
  signal(SIGXFSZ, before);
  if (n != static_cast<ssize_t>(first.size())) refuse(error);
  if (header.empty() && ftruncate(fd.get(), 0) != 0) refuse(errno);
  if (fstat(fd.get(), &status) != 0) refuse(errno);
  return {path, status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec};
}

void set(const char* variable, const RecordedFile& file) {
  if (file.path.empty()) return;  // what this ddprun was run under goes on
  setenv(variable, fmt::format("{}:{}:{}", getpid(), file.since, file.path).c_str(), 1);
}

}  // namespace

void declare_recording(CLI::App& app, Recording& recording) {
  app.add_option("--pcap", recording.capture,
                 "write what the connections carry to this file, for Wireshark; other processes "
                 "than CMD's own to FILE.PID");
  app.add_option("--trace", recording.trace,
                 "write a line for each thing that happens to a connection; FILE.PID as above");
}

RecordedFiles make_files(const Recording& recording) {
  RecordedFiles files;
  const engine::wrap::CaptureHeader header;
  files.capture = make_file("--pcap", recording.capture, header.bytes());
  files.trace = make_file("--trace", recording.trace, {});
  if (!files.capture.path.empty() && !files.trace.path.empty()) {
    std::error_code none;
    if (fs::equivalent(files.capture.path, files.trace.path, none))
      stop("--pcap and --trace name one file");
  }
  return files;
}

void announce(const RecordedFiles& files) {
  set("DDPSOCK_PCAP", files.capture);
  set("DDPSOCK_TRACE", files.trace);
}

}  // namespace ddpsock::shim
