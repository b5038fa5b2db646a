// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/kernel_view.h"
#include "shim/connection.h"
#include "shim/fd_table.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

enum class Logging : int { kUnknown, kOff, kOn };
constinit std::atomic<Logging> logging{Logging::kUnknown};

constexpr int kMostNamedFds = 1024;

// What standard error was at start: another file under its number is the program's data. A TCP
// connection is that from the first (inetd).
struct StandardError {
  bool is_open;
  dev_t device;
  ino_t number;
};
constinit StandardError at_start{};

StandardError look_at_standard_error() {
  struct stat status;
  if (base::kernel::fstat(STDERR_FILENO, status) != 0 || is_tcp_socket(STDERR_FILENO)) return {};
  return {true, status.st_dev, status.st_ino};
}

bool is_standard_error_still() {
  const StandardError now = look_at_standard_error();
  return now.is_open && at_start.is_open && now.device == at_start.device &&
         now.number == at_start.number;
}

// After real.cpp.
[[gnu::constructor(102)]] void begin_at_start() {
  is_logging();
}

struct PeerText {
  char text[INET6_ADDRSTRLEN + 16];
};

PeerText peer_of(int fd) {
  PeerText peer{"?"};
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return peer;
  char host[INET6_ADDRSTRLEN];
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &in.sin_addr, host, sizeof(host));
    snprintf(peer.text, sizeof(peer.text), "%s:%u", host, ntohs(in.sin_port));
  } else if (address.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &in.sin6_addr, host, sizeof(host));
    snprintf(peer.text, sizeof(peer.text), "[%s]:%u", host, ntohs(in.sin6_port));
  }
  return peer;
}

void write_line(const char* line, size_t length) {
  const char* file = secure_getenv("DDPSOCK_LOG_FILE");
  int fd = STDERR_FILENO;
  if (file == nullptr) {
    if (!is_standard_error_still()) return;
  } else {
    fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
  }
  [[maybe_unused]] const ssize_t written = real.write(fd, line, length);
  if (file != nullptr) base::close_own(fd);
}

}  // namespace

bool is_logging() {
  Logging now = logging.load(std::memory_order_relaxed);
  if (now == Logging::kUnknown) {
    const char* level = secure_getenv("DDPSOCK_LOG");
    now = level != nullptr && strcmp(level, "info") == 0 ? Logging::kOn : Logging::kOff;
    const int saved_errno = errno;
    if (now == Logging::kOn) at_start = look_at_standard_error();
    errno = saved_errno;
    logging.store(now, std::memory_order_relaxed);
  }
  return now == Logging::kOn;
}

void log_connection(const char* event, int fd, const char* mode, const char* engine,
                    const char* reason) {
  if (!is_logging()) return;
  const base::KeepErrno keep;
  char line[256];
  const int length = snprintf(line, sizeof(line), "ddpsock[%d] %s fd=%d peer=%s mode=%s%s%s: %s\n",
                              getpid(), event, fd, peer_of(fd).text, mode,
                              *engine != '\0' ? " engine=" : "", engine, reason);
  write_line(line, std::min(static_cast<size_t>(length), sizeof(line) - 1));
}

void log_exec(const char* path, const char* why) {
  if (!is_logging()) return;
  const base::KeepErrno keep;
  char fds[128] = "";
  size_t end = 0;
  for (int fd = 0; fd < kMostNamedFds && end < sizeof(fds) - 12; ++fd) {
    const Socket* socket = socket_at(fd);
    if (socket != nullptr && has_live_stream(socket->phase.load()) &&
        (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0)
      end += static_cast<size_t>(snprintf(fds + end, sizeof(fds) - end, " %d", fd));
  }
  if (end > 0) {
    char line[512];
    const int length =
        snprintf(line, sizeof(line), "ddpsock[%d] exec %.200s: fds%s leave DDPMODE: %s\n", getpid(),
                 path, fds, why);
    write_line(line, std::min(static_cast<size_t>(length), sizeof(line) - 1));
  }
}

}  // namespace ddpsock::shim
