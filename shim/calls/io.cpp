// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Bytes in and out of one socket: read, write, recv, send and their vectors.
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "shim/calls.h"
#include "shim/calls/flags.h"
#include "shim/calls/leaving.h"
#include "shim/libc_edge.h"
#include "shim/program_memory.h"
#include "shim/real.h"
#include "shim/stream_call.h"

namespace ddpsock::shim {
namespace {

template <typename OnLibc>
ssize_t receive(int fd, std::span<const iovec> to, int flags, OnLibc on_libc) {
  return serve(
      fd, flags, Direction::kReceive,
      [=](engine::Stream& stream) { return receive_into(stream, fd, to, flags); }, on_libc);
}

template <typename OnLibc>
ssize_t transmit(int fd, std::span<const iovec> from, int flags, OnLibc on_libc) {
  return serve(
      fd, flags, Direction::kSend,
      [=](engine::Stream& stream) { return send_from(stream, fd, from, flags); }, on_libc);
}

bool is_vector(const iovec* parts, int count) {
  if (count <= 0 || count > IOV_MAX) return count == 0;
  const std::span<const iovec> all(parts, static_cast<size_t>(count));
  return is_sound(parts, all.size_bytes()) && !has_negative(all);
}

bool is_empty(std::span<const iovec> parts) {
  for (const iovec& part : parts)
    if (part.iov_len != 0) return false;
  return true;
}

// The flags of preadv2 and pwritev2 as MSG_*; -1: not for a socket.
int message_flags(int flags) {
  if ((flags & ~(RWF_NOWAIT | RWF_HIPRI)) != 0) return -1;
  return (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
}

}  // namespace

ssize_t chosen_read(int fd, void* buffer, size_t size) {
  // Unlike recv(), which waits, read() of nothing returns at once.
  if (size == 0) return real.read(fd, buffer, size);
  const iovec part{buffer, size};
  return receive(fd, {&part, 1}, 0, [=] { return real.read(fd, buffer, size); });
}

ssize_t chosen_write(int fd, const void* buffer, size_t size) {
  const iovec part{const_cast<void*>(buffer), size};
  return transmit(fd, {&part, 1}, 0, [=] { return real.write(fd, buffer, size); });
}

ssize_t chosen_readv(int fd, const iovec* parts, int count) {
  if (!is_vector(parts, count) || is_empty({parts, static_cast<size_t>(count)}))
    return real.readv(fd, parts, count);
  return receive(fd, {parts, static_cast<size_t>(count)}, 0,
                 [=] { return real.readv(fd, parts, count); });
}

ssize_t chosen_writev(int fd, const iovec* parts, int count) {
  if (!is_vector(parts, count)) return real.writev(fd, parts, count);
  // Unlike write() of nothing, it does not reach the socket.
  if (is_empty({parts, static_cast<size_t>(count)})) return real.writev(fd, parts, count);
  return transmit(fd, {parts, static_cast<size_t>(count)}, 0,
                  [=] { return real.writev(fd, parts, count); });
}

ssize_t chosen_preadv2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  const auto on_libc = [=] { return real.preadv2(fd, parts, count, offset, flags); };
  // ESPIPE for every offset but -1, as on any socket.
  if (offset != -1 || !is_vector(parts, count) || is_empty({parts, static_cast<size_t>(count)}))
    return on_libc();
  if (message_flags(flags) < 0) return fail(EOPNOTSUPP);
  return receive(fd, {parts, static_cast<size_t>(count)}, message_flags(flags), on_libc);
}

ssize_t chosen_pwritev2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  const auto on_libc = [=] { return real.pwritev2(fd, parts, count, offset, flags); };
  if (offset != -1 || !is_vector(parts, count)) return on_libc();
  if (is_empty({parts, static_cast<size_t>(count)})) return on_libc();
  if (message_flags(flags) < 0) return fail(EOPNOTSUPP);
  return transmit(fd, {parts, static_cast<size_t>(count)}, message_flags(flags), on_libc);
}

ssize_t chosen_recv(int fd, void* buffer, size_t size, int flags) {
  return chosen_recvfrom(fd, buffer, size, flags, nullptr, nullptr);
}

ssize_t chosen_send(int fd, const void* buffer, size_t size, int flags) {
  return chosen_sendto(fd, buffer, size, flags, nullptr, 0);
}

ssize_t chosen_recvfrom(int fd, void* buffer, size_t size, int flags, sockaddr* from,
                        socklen_t* length) {
  const auto on_libc = [=] { return real.recvfrom(fd, buffer, size, flags, from, length); };
  const iovec part{buffer, size};
  const auto on_stream = [&](engine::Stream& stream) {
    const Flags wanted = receive_flags(flags);
    if (wanted.error != 0) return refuse_receive(stream, fd, wanted);
    const engine::Io io = receive_into(stream, fd, {&part, 1}, wanted.for_engine);
    if (!io.is_ok() || from == nullptr) return io;
    // TCP names no sender. The kernel looks at the room for one when the bytes have been taken.
    if (!is_sound(length, sizeof *length)) return engine::Io::fail(EFAULT);
    if (is_negative(*length)) return engine::Io::fail(EINVAL);
    *length = 0;
    return io;
  };
  leave_to_receive(fd, flags);
  return (flags & MSG_ERRQUEUE) != 0 ? on_libc()
                                     : serve(fd, flags, Direction::kReceive, on_stream, on_libc);
}

ssize_t chosen_sendto(int fd, const void* buffer, size_t size, int flags, const sockaddr* to,
                      socklen_t length) {
  const iovec part{const_cast<void*>(buffer), size};
  const auto on_stream = [&](engine::Stream& stream) {
    // A connected TCP socket ignores the address, but for one that nothing could be.
    if (to != nullptr && length > sizeof(sockaddr_storage)) return engine::Io::fail(EINVAL);
    if (to != nullptr && length > 0 && !is_sound(to, length)) return engine::Io::fail(EFAULT);
    const Flags wanted = send_flags(fd, flags);
    return wanted.error != 0 ? engine::Io::fail(wanted.error)
                             : send_from(stream, fd, {&part, 1}, wanted.for_engine);
  };
  leave_for_urgent_data(fd, flags);
  return serve(fd, flags, Direction::kSend, on_stream,
               [=] { return real.sendto(fd, buffer, size, flags, to, length); });
}

}  // namespace ddpsock::shim
