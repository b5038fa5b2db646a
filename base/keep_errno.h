// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_BASE_KEEP_ERRNO_H_
#define DDPSOCK_BASE_KEEP_ERRNO_H_

#include <errno.h>

namespace ddpsock::base {

// errno at the end of a scope is what it was at its beginning.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_KEEP_ERRNO_H_
