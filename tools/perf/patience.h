// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How long a peer may be silent: a test may take any time as long as its connections carry
// something.
#ifndef DDPSOCK_TOOLS_PERF_PATIENCE_H_
#define DDPSOCK_TOOLS_PERF_PATIENCE_H_

#include <cstdint>
#include <span>

#include "base/clock.h"

namespace ddpsock::perf {

class Patience {
 public:
  explicit Patience(Duration most) : most_(most) {}

  // Begins to count. `fds`: the TCP sockets that are watched, until the next renew().
  void renew(std::span<const int> fds);
  Time deadline() const { return deadline_; }
  // False: nothing has come or gone for the whole time. Looks at the sockets only at the deadline,
  // and moves it on if something has.
  bool lasts();

 private:
  static constexpr size_t kMostFds = 2;
  uint64_t carried() const;

  Duration most_;
  Time deadline_ = kNever;
  int fds_[kMostFds] = {-1, -1};
  uint64_t carried_ = 0;
};

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_PATIENCE_H_
