// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "calls.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ddpsock::shim_tests {
namespace {

std::array<iovec, 3> cut(void* bytes, size_t count) {
  auto* at = static_cast<char*>(bytes);
  const size_t first = count / 3;
  return {{{at, first}, {at + first, 0}, {at + first, count - first}}};
}

std::array<iovec, 3> cut(const void* bytes, size_t count) {
  return cut(const_cast<void*>(bytes), count);
}

msghdr message_of(std::array<iovec, 3>& parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return message;
}

ssize_t by_write(int fd, const void* bytes, size_t count) {
  return write(fd, bytes, count);
}

ssize_t by_writev(int fd, const void* bytes, size_t count) {
  const auto parts = cut(bytes, count);
  return writev(fd, parts.data(), parts.size());
}

ssize_t by_send(int fd, const void* bytes, size_t count) {
  return send(fd, bytes, count, 0);
}

ssize_t by_sendto(int fd, const void* bytes, size_t count) {
  return sendto(fd, bytes, count, 0, nullptr, 0);
}

ssize_t by_sendmsg(int fd, const void* bytes, size_t count) {
  auto parts = cut(bytes, count);
  const msghdr message = message_of(parts);
  return sendmsg(fd, &message, 0);
}

ssize_t by_read(int fd, void* bytes, size_t count) {
  return read(fd, bytes, count);
}

ssize_t by_readv(int fd, void* bytes, size_t count) {
  const auto parts = cut(bytes, count);
  return readv(fd, parts.data(), parts.size());
}

ssize_t by_recv(int fd, void* bytes, size_t count) {
  return recv(fd, bytes, count, 0);
}

ssize_t by_recvfrom(int fd, void* bytes, size_t count) {
  return recvfrom(fd, bytes, count, 0, nullptr, nullptr);
}

ssize_t by_recvmsg(int fd, void* bytes, size_t count) {
  auto parts = cut(bytes, count);
  msghdr message = message_of(parts);
  return recvmsg(fd, &message, 0);
}

}  // namespace

const std::array<Writer, 5> kWriters{{{"write", by_write, false},
                                      {"writev", by_writev, false},
                                      {"send", by_send, true},
                                      {"sendto", by_sendto, true},
                                      {"sendmsg", by_sendmsg, true}}};

const std::array<Reader, 5> kReaders{{{"read", by_read, false},
                                      {"readv", by_readv, false},
                                      {"recv", by_recv, true},
                                      {"recvfrom", by_recvfrom, true},
                                      {"recvmsg", by_recvmsg, true}}};

}  // namespace ddpsock::shim_tests
