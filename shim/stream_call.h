// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The one path from a libc call on a socket of ours to its stream, or to libc after all.
#ifndef DDPSOCK_SHIM_STREAM_CALL_H_
#define DDPSOCK_SHIM_STREAM_CALL_H_

#include <errno.h>

#include "shim/connection.h"
#include "shim/fd_table.h"

namespace ddpsock::shim {

enum class Server : uint8_t {
  kStream,
  kLibc,
  kLater,        // a non-blocking call on a connection that TCP has not established: EAGAIN
  kNobody,       // message mode has no bytes to read or write: EOPNOTSUPP
  kInterrupted,  // a signal came while a blocking call waited for TCP: EINTR
};

// Who serves a call on `use` with these MSG_* flags. Completes a connection under way; a blocking
// call waits for TCP here, because libc's would not stop at establishment.
Server choose_server(SocketUse& use, int fd, int flags);

// True if `io` means that the call is libc's: the peer turned out to be plain TCP, or the
// descriptor is no longer the socket it was (closed by code that no preload sees).
bool is_for_libc(const engine::Io& io, SocketUse& use, int fd);

inline ssize_t to_libc(const engine::Io& io) {
  if (!io.is_ok()) {
    errno = io.error;
    return -1;
  }
  return io.count;
}

// Runs `on_stream(Stream&) -> Io` or `on_libc() -> ssize_t`. errno afterwards is as libc leaves it.
template <typename OnStream, typename OnLibc>
ssize_t serve(int fd, int flags, OnStream on_stream, OnLibc on_libc) {
  if (SocketUse use(fd); use) {
    const Server server = choose_server(use, fd, flags);
    if (server == Server::kLater) return to_libc(engine::Io::fail(EAGAIN));
    if (server == Server::kNobody) return to_libc(engine::Io::fail(EOPNOTSUPP));
    if (server == Server::kInterrupted) return to_libc(engine::Io::fail(EINTR));
    if (server == Server::kStream) {
      const engine::Io io = on_stream(*use->stream.load(std::memory_order_acquire));
      if (!is_for_libc(io, use, fd)) return to_libc(io);
    }
  }
  return on_libc();
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_STREAM_CALL_H_
