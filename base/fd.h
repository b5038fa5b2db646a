// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_BASE_FD_H_
#define DDPSOCK_BASE_FD_H_

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/kernel_call.h"

namespace ddpsock::base {

// Closes a descriptor of our own. Not by libc's close(), which is a cancellation point, and which
// libraries preloaded beside ours replace, some of them with a lock that their caller has.
inline void close_own(int fd) {
  kernel_call(SYS_close, fd);
}

// Owns one file descriptor; closes it when it goes.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& o) noexcept {
    if (this != &o) reset(std::exchange(o.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool is_valid() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) close_own(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// Where descriptors of our own go: programs get the lowest numbers and try round ones; not so high
// that the kernel must grow the table of descriptors much.
inline int high_number() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return static_cast<int>(std::min<rlim_t>(files.rlim_cur, 4096) * 3 / 4);
}

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_FD_H_
