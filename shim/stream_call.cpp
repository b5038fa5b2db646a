// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/stream_call.h"

#include <sys/socket.h>

#include "base/wake.h"

namespace ddpsock::shim {

Server choose_undecided_server(SocketUse& use, int fd, int flags, Direction direction) {
  for (;;) {
    switch (use.phase()) {
      case Phase::kStream:
        return Server::kStream;
      case Phase::kIdle:
      case Phase::kListening:
      case Phase::kPlain:
        return Server::kLibc;
      case Phase::kMessage:
        return Server::kNobody;
      case Phase::kConnecting:
      case Phase::kCompleting:
        break;
    }
    if (!is_true_entry(use, fd)) return Server::kLibc;
    if (complete_connect(use, fd, false) == EAGAIN) return Server::kLater;
    if (use.phase() != Phase::kConnecting) continue;
    if ((flags & MSG_DONTWAIT) != 0 || use->is_nonblocking.load(std::memory_order_relaxed))
      return Server::kLater;
    engine::Stream* stream = use->stream.load(std::memory_order_acquire);
    if (stream == nullptr) continue;  // another thread has just given the attempt up
    switch (base::woken(stream->await_established(fd, direction), true)) {
      case EAGAIN:
        return Server::kLater;
      case EINTR:
        return Server::kInterrupted;
    }
    if (socket_at(fd) != &*use || !is_true_entry(use, fd)) return Server::kGone;
  }
}

bool is_for_libc(const engine::Io& io, SocketUse& use, int fd) {
  if (io.error == ENOTSOCK || io.error == EBADF) {
    forget_stale_fd(fd, *use);
    return io.error == ENOTSOCK;
  }
  if (io.error != EPROTOTYPE) return false;
  const engine::Stream& stream = *use->stream.load(std::memory_order_acquire);
  const engine::StreamStatus status = stream.status();
  if (status.state != engine::StreamState::kPlain) return false;
  // Not the stream's own words, which go with it.
  if (use.phase() == Phase::kStream)
    make_plain(*use, fd,
               status.is_peer_ddpsock ? "returned to plain TCP: the peer or a relative asked for it"
                                      : "the peer turned out to be plain TCP");
  return true;
}

}  // namespace ddpsock::shim
