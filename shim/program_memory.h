// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Pointers of the program's that lead nowhere: the kernel says EFAULT, where this library would
// crash. What costs no system call is looked at in each call: nothing at all, and addresses that no
// program has. Memory that is not mapped is a crash still, but where the kernel is asked.
#ifndef DDPSOCK_SHIM_PROGRAM_MEMORY_H_
#define DDPSOCK_SHIM_PROGRAM_MEMORY_H_

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "stream/stream.h"

namespace ddpsock::shim {

// False: no program has all of it. The kernel looks at that first.
inline bool may_be_mapped(const void* first, size_t size) {
  constexpr uintptr_t kEnd = uintptr_t{1} << 56;  // of what a processor gives to programs
  const auto begin = reinterpret_cast<uintptr_t>(first);
  return begin <= kEnd && std::min(size, engine::kMostAtOnce) <= kEnd - begin;
}

// The page of null pointers.
inline bool is_null(const void* first) {
  constexpr uintptr_t kPage = 4096;
  return reinterpret_cast<uintptr_t>(first) < kPage;
}

inline bool is_sound(const void* first, size_t size) {
  return !is_null(first) && may_be_mapped(first, size);
}

template <typename T>
bool is_sound_array(const T* first, size_t count) {
  constexpr size_t kMost = INT_MAX;  // of any call
  return count == 0 || (count <= kMost && is_sound(first, count * sizeof(T)));
}

inline bool is_sound(std::span<const iovec> parts) {
  if (!parts.empty() && !is_sound(parts.data(), parts.size_bytes())) return false;
  for (const iovec& part : parts)
    if (part.iov_len != 0 && !is_sound(part.iov_base, part.iov_len)) return false;
  return true;
}

// The kernel's lengths have a sign.
inline bool is_negative(socklen_t length) {
  return static_cast<int>(length) < 0;
}
inline bool has_negative(std::span<const iovec> parts) {
  if (parts.empty() || !is_sound(parts.data(), parts.size_bytes())) return false;
  for (const iovec& part : parts)
    if (part.iov_len > SSIZE_MAX) return true;
  return false;
}

// What recv() makes of parts that are not sound.
engine::Io receive_unsound(engine::Stream& stream, int fd, std::span<const iovec> to, int flags);

inline engine::Io receive_into(engine::Stream& stream, int fd, std::span<const iovec> to,
                               int flags) {
  return is_sound(to) ? stream.recv(fd, to, flags) : receive_unsound(stream, fd, to, flags);
}

inline engine::Io send_from(engine::Stream& stream, int fd, std::span<const iovec> from,
                            int flags) {
  return is_sound(from) ? stream.send(fd, from, flags) : engine::Io::fail(EFAULT);
}

// Asks the kernel, once a page.
bool is_readable(const void* first, size_t size);
bool is_readable(const sockaddr* address, socklen_t length);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_PROGRAM_MEMORY_H_
