// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The one path from a libc call on a socket of ours to its stream, or to libc after all.
#ifndef DDPSOCK_SHIM_STREAM_CALL_H_
#define DDPSOCK_SHIM_STREAM_CALL_H_

#include <errno.h>

#include <optional>

#include "shim/connection.h"
#include "shim/fd_table.h"

namespace ddpsock::shim {

using engine::Direction;

enum class Server : uint8_t {
  kStream,
  kLibc,
  kLater,        // TCP has not established it, and the call does not wait, or no longer: EAGAIN
  kNobody,       // message mode has no bytes to read or write: EOPNOTSUPP
  kInterrupted,  // a signal came while a blocking call waited for TCP: EINTR
  kGone,         // `fd` was closed meanwhile, or is another's: EBADF
};

// Who serves a call on `use` with these MSG_* flags. Completes a connection under way; a blocking
// call waits for TCP here, because libc's would not stop at establishment.
Server choose_undecided_server(SocketUse& use, int fd, int flags, Direction direction);
inline Server choose_server(SocketUse& use, int fd, int flags, Direction direction) {
  return use.phase() == Phase::kStream ? Server::kStream
                                       : choose_undecided_server(use, fd, flags, direction);
}

// What a call answers that no server has; 0: it is libc's.
constexpr int error_of(Server server) {
  switch (server) {
    case Server::kLater:
      return EAGAIN;
    case Server::kNobody:
      return EOPNOTSUPP;
    case Server::kInterrupted:
      return EINTR;
    case Server::kGone:
      return EBADF;
    default:
      return 0;
  }
}

// True if `io` means that the call is libc's: the peer turned out to be plain TCP, or the
// descriptor is not a socket any more (closed by code that no preload sees). Not EBADF: a call that
// slept acted on the socket it began with, and never begins again with another.
bool is_for_libc(const engine::Io& io, SocketUse& use, int fd);

// Is `fd` still what it is entered as? If not, it is left to its new owner. A system call now and
// then only (engine::Stream::is_behind). Another thread may have given up the attempt to connect,
// and the stream with it: then too it is.
inline bool is_true_entry(const SocketUse& use, int fd) {
  engine::Stream* stream = use->stream.load(std::memory_order_acquire);
  if (stream == nullptr || stream->is_behind(fd)) [[likely]]
    return true;
  forget_stale_fd(fd, *use);
  return false;
}

inline ssize_t to_libc(const engine::Io& io) {
  if (!io.is_ok()) {
    errno = io.error;
    return -1;
  }
  return io.count;
}

// Runs `on_stream(Stream&) -> Io`. Nothing: the call is libc's.
template <typename OnStream>
std::optional<ssize_t> serve_stream(SocketUse& use, int fd, int flags, Direction direction,
                                    OnStream on_stream) {
  const Server server = choose_server(use, fd, flags, direction);
  if (server != Server::kStream) [[unlikely]] {
    if (const int error = error_of(server); error != 0) return to_libc(engine::Io::fail(error));
    return std::nullopt;
  }
  engine::Stream* stream = use->stream.load(std::memory_order_acquire);
  if (stream != nullptr && is_true_entry(use, fd)) {
    const engine::Io io = on_stream(*stream);
    if (io.is_ok() || !is_for_libc(io, use, fd)) [[likely]]
      return to_libc(io);
    // The call slept, and its number was closed.
    if (io.error == EPROTOTYPE && socket_at(fd) != &*use) return to_libc(engine::Io::fail(EBADF));
  }
  return std::nullopt;
}

// The same, or `on_libc() -> ssize_t`. errno afterwards is as libc leaves it.
template <typename OnStream, typename OnLibc>
ssize_t serve(int fd, int flags, Direction direction, OnStream on_stream, OnLibc on_libc) {
  if (SocketUse use(fd); use)
    if (const auto result = serve_stream(use, fd, flags, direction, on_stream)) return *result;
  return on_libc();
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_STREAM_CALL_H_
