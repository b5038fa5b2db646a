// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>

#include "base/sys.h"

namespace ddpsock::iwarp {
namespace {

// poll() counts milliseconds in an int, and a signal or a clock set wrong must not hide a deadline.
constexpr int64_t kLongestPollMs = 1'000;
constexpr size_t kMostWishes = 4;

bool wait_for(std::span<pollfd> entries, Time deadline) {
  for (;;) {
    const Duration left = deadline - base::now();
    const int64_t ms =
        deadline == kNever ? kLongestPollMs : std::min(left.ceil_ms(), kLongestPollMs);
    if (base::sys.poll(entries.data(), entries.size(), static_cast<int>(ms)) != 0) return true;
    if (deadline != kNever && base::now() >= deadline) return false;
  }
}

}  // namespace

bool wait_for(int fd, short events, Time deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  return wait_for({&entry, 1}, deadline);
}

bool wait_for(std::span<const Wish> wishes, Time deadline) {
  assert(wishes.size() <= kMostWishes);
  std::array<pollfd, kMostWishes> entries;
  for (size_t i = 0; i < wishes.size(); ++i) {
    const engine::Need& need = wishes[i].need;
    const int events = (need.wants_readable ? POLLIN : 0) | (need.wants_writable ? POLLOUT : 0);
    entries[i] = {.fd = wishes[i].fd, .events = static_cast<short>(events), .revents = 0};
    deadline = std::min(deadline, need.deadline);
  }
  return wait_for(std::span(entries).first(wishes.size()), deadline);
}

void set_no_delay(int fd) {
  const int on = 1;
  base::sys.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<base::UniqueFd, Error> connect_tcp(const Address& to, Time deadline,
                                          const std::optional<Address>& source) {
  base::UniqueFd fd(base::sys.socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_valid()) return fail_with("making a socket", errno);
  set_no_delay(fd.get());
  if (source && bind(fd.get(), source->get(), source->size) != 0) {
    return fail_with("binding the source address", errno);
  }
  if (base::sys.connect(fd.get(), to.get(), to.size) == 0) return fd;
  if (errno != EINPROGRESS && errno != EINTR) return fail_with("connecting", errno);
  if (!wait_for(fd.get(), POLLOUT, deadline)) return fail_with("connecting", ETIMEDOUT);
  int error = 0;
  socklen_t size = sizeof error;
  if (base::sys.getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return fail_with("connecting", error);
  return fd;
}

void close_gently(base::UniqueFd fd, Time deadline) {
  base::sys.shutdown(fd.get(), SHUT_WR);
  std::array<char, 4096> dropped;
  for (;;) {
    const ssize_t n = base::sys.recv(fd.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (n == 0) return;
    if (n < 0 && errno != EAGAIN && errno != EINTR) return;
    if (base::now() >= deadline) return;
    if (n < 0 && !wait_for(fd.get(), POLLIN, deadline)) return;
  }
}

}  // namespace ddpsock::iwarp
