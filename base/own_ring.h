// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The io_uring of the library's own thread, which is not the program's. It has a descriptor until
// that thread has registered it, and where the kernel refuses that for as long as it lives.
#ifndef DDPSOCK_BASE_OWN_RING_H_
#define DDPSOCK_BASE_OWN_RING_H_

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string_view>

namespace ddpsock::base {

inline constinit std::atomic<int> own_ring{-1};  // its descriptor

// Whether `fd` is an io_uring, whoever has made it.
inline bool is_ring(int fd) {
  char path[64], link[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(path, link, sizeof link);
  return n > 0 && std::string_view(link, static_cast<size_t>(n)) == "anon_inode:[io_uring]";
}

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_OWN_RING_H_
