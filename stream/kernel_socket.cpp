// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/kernel_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/keep_errno.h"
#include "base/socket_option.h"
#include "base/sys.h"
#include "base/wake.h"

namespace ddpsock::engine {

using MemoryInfo = std::array<uint32_t, SK_MEMINFO_VARS>;

bool is_nonblocking(int fd) {
  const base::KeepErrno keep;
  const int fl = base::sys.fcntl(fd, F_GETFL);
  return fl >= 0 && (fl & O_NONBLOCK) != 0;
}

bool is_nagling(int fd) {
  const auto is_off = [fd](int option) {
    return base::socket_option(fd, IPPROTO_TCP, option).value_or(1) == 0;
  };
  return is_off(TCP_NODELAY) && is_off(TCP_CORK);
}

bool is_ready_now(int fd, short events) {
  if (fd < 0) return true;
  const base::KeepErrno keep;
  pollfd p{fd, events, 0};
  return base::sys.poll(&p, 1, 0) != 0;
}

bool has_error(int fd) {
  const base::KeepErrno keep;
  pollfd p{fd, 0, 0};
  return base::sys.poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
}

bool is_told_once(int error) {
  switch (error) {
    case ECONNRESET:
    case ETIMEDOUT:
    case ECONNABORTED:
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENONET:
    case ENOPROTOOPT:
    case EACCES:
      return true;
    default:
      return false;
  }
}

// In the kernel's numbers.
static uint8_t state_of(int fd) {
  const base::KeepErrno keep;
  const auto info = base::socket_option<tcp_info>(fd, IPPROTO_TCP, TCP_INFO);
  return info ? info->tcpi_state : 0;
}

bool has_peer_ended(int fd) {
  constexpr uint8_t kEstablished = 1, kFinWait1 = 4, kFinWait2 = 5;
  const uint8_t state = state_of(fd);
  return state != kEstablished && state != kFinWait1 && state != kFinWait2;
}

bool has_been_reset(int fd) {
  constexpr uint8_t kClosed = 7;
  return state_of(fd) == kClosed;
}

int wait_ready(int fd, short events, Time deadline) {
  if (fd < 0) return EBADF;
  const base::KeepErrno keep;
  pollfd p{fd, events, 0};
  ++base::effort.waits;
  for (;;) {
    int64_t ms = -1;
    if (deadline != kNever) ms = std::min<int64_t>((deadline - base::now()).ceil_ms(), INT_MAX);
    const int r = base::sys.poll(&p, 1, static_cast<int>(ms));
    base::note_wake();
    if (r > 0) return 0;
    if (r < 0) return errno;
    if (deadline != kNever && base::now() >= deadline) return EAGAIN;
  }
}

Time deadline_of(int fd, int option) {
  const base::KeepErrno keep;
  const auto tv = base::socket_option<timeval>(fd, SOL_SOCKET, option).value_or(timeval{});
  const int64_t ns = int64_t{tv.tv_sec} * 1'000'000'000 + int64_t{tv.tv_usec} * 1000;
  return ns == 0 ? kNever : base::now() + Duration{ns};
}

void set_kernel_low_water(int fd, int bytes) {
  const base::KeepErrno keep;
  base::set_socket_option(fd, SOL_SOCKET, SO_RCVLOWAT, bytes);
}

size_t bytes_queued(int fd) {
  const base::KeepErrno keep;
  int bytes = 0;
  return base::sys.ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

bool do_handlers_restart() {
  const base::KeepErrno keep;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action;
    // A thread's own faults interrupt no sleep; what reports crashes handles them without
    // SA_RESTART.
    if (signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
        signal == SIGTRAP || signal == SIGABRT)
      continue;
    if (sigaction(signal, nullptr, &action) != 0) continue;
    const bool is_handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    if (is_handled && (action.sa_flags & SA_RESTART) == 0) return false;
  }
  return true;
}

bool does_restart(int fd, int timeout_option) {
  return deadline_of(fd, timeout_option) == kNever && do_handlers_restart();
}

int await_established(int fd, int timeout_option) {
  const Time deadline = deadline_of(fd, timeout_option);
  for (;;) {
    const int e = wait_ready(fd, POLLOUT, deadline);
    if (e != EINTR || deadline != kNever || !do_handlers_restart()) return e;
  }
}

static std::optional<MemoryInfo> memory_info(int fd) {
  return base::socket_option<MemoryInfo>(fd, SOL_SOCKET, SO_MEMINFO);
}

SendMemory send_memory(int fd) {
  const base::KeepErrno keep;
  const MemoryInfo m = memory_info(fd).value_or(MemoryInfo{});
  return {m[SK_MEMINFO_SNDBUF], m[SK_MEMINFO_WMEM_QUEUED]};
}

bool is_receive_memory_full(int fd) {
  const base::KeepErrno keep;
  const auto m = memory_info(fd);
  return m && (*m)[SK_MEMINFO_RMEM_ALLOC] >= (*m)[SK_MEMINFO_RCVBUF] / 2;
}

bool is_receiving_at_limit(int fd) {
  const base::KeepErrno keep;
  const auto m = memory_info(fd);
  if (!m) return false;
  const uint32_t limit = (*m)[SK_MEMINFO_RCVBUF], taken = (*m)[SK_MEMINFO_RMEM_ALLOC];
  if (taken > limit - limit / 8) return true;
  struct {
    tcp_info info;
    uint32_t more[4];
  } told{};
  constexpr size_t kWindow = offsetof(tcp_info, tcpi_snd_wnd) + sizeof(told.info.tcpi_snd_wnd);
  socklen_t size = sizeof told;
  if (base::sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &told, &size) != 0) return false;
  // tcpi_rcv_wnd, which the kernel tells since Linux 6.2.
  uint32_t window = 0;
  if (size < kWindow + sizeof window) return taken >= limit / 2;
  memcpy(&window, reinterpret_cast<const char*>(&told) + kWindow, sizeof window);
  return window <= told.info.tcpi_rcv_mss;
}

uint32_t send_window(int fd) {
  const base::KeepErrno keep;
  tcp_info info{};
  socklen_t size = sizeof info;
  if (base::sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return size >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd ? info.tcpi_snd_wnd
                                                                             : 0;
}

}  // namespace ddpsock::engine
