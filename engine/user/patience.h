// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_ENGINE_USER_PATIENCE_H_
#define DDPSOCK_ENGINE_USER_PATIENCE_H_

#include <sys/socket.h>

#include <utility>

#include "base/clock.h"
#include "engine/user/kernel_socket.h"

namespace ddpsock::engine {

// How long one receive call goes on waiting. The kernel counts SO_RCVTIMEO from each of its sleeps,
// and a peer can end those one after the other with bytes that nobody gets; TCP counts it from the
// first. So whoever is about to sleep again asks here. A call that is done soon costs no system
// call, and one that goes on once not even a look at the clock.
class Patience {
 public:
  explicit Patience(int fd) : fd_(fd) {}

  // kNever: the kernel's own timeout will do, or there is none.
  Time deadline() {
    if (deadline_ != kUnset) return deadline_;
    if (!std::exchange(has_slept_, true)) return kNever;
    const Time now = base::now();
    if (since_ == kUnset) since_ = now;
    const Duration spent = now - since_;
    if (spent < kUnasked) return kNever;
    deadline_ = deadline_of(fd_, SO_RCVTIMEO);
    if (deadline_ != kNever) deadline_.ns -= spent.ns;
    return deadline_;
  }
  bool is_over() { return deadline() != kNever && base::now() >= deadline(); }

 private:
  static constexpr Time kUnset{};
  static constexpr Duration kUnasked = Duration::from_ms(5);

  int fd_;
  bool has_slept_ = false;  // or could have
  Time since_ = kUnset, deadline_ = kUnset;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_PATIENCE_H_
