// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/sys.h"
#include "tools/iwarp/wait.h"

namespace ddpsock::iwarp {

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
