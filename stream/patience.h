// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_STREAM_PATIENCE_H_
#define DDPSOCK_STREAM_PATIENCE_H_

#include <sys/socket.h>

#include <optional>
#include <utility>

#include "base/clock.h"
#include "stream/kernel_socket.h"

namespace ddpsock::engine {

// How long one receive call goes on waiting. The kernel counts SO_RCVTIMEO from each of its sleeps,
// and a peer can end those one after the other with bytes that nobody gets; TCP counts it from the
// first. So whoever is about to sleep again asks here. A call that is done soon costs no system
// call, and one that goes on once not even a look at the clock.
class Patience {
 public:
  // `may_get_part`: the call may go on after its first sleep, with a part of what it wants.
  explicit Patience(int fd, bool may_get_part = false)
      : fd_(fd), since_(may_get_part ? base::now() : kUnset) {}

  // kNever: the kernel's own timeout will do, or there is none.
  Time deadline() {
    if (deadline_ != kUnset) return deadline_;
    if (!std::exchange(has_slept_, true)) return kNever;
    const Time now = base::now();
    if (since_ == kUnset) since_ = now;
    if (now - since_ < kUnasked) return kNever;
    ask();
    return deadline_;
  }
  // What outlives the number goes by that from now on.
  void follow(int fd) { fd_ = fd; }
  // By when a call that may wait has to wait in poll() before it reads; nothing: the read is to do
  // the waiting. With a part of what is wanted, TCP's call ends at a signal: a read that has got
  // nothing itself would be restarted (SA_RESTART), and poll() is not.
  std::optional<Time> before_read(bool has_part) {
    const Time until = deadline();
    if (until == kNever && !has_part) return {};
    if (!is_nonblocking_) is_nonblocking_ = is_nonblocking(fd_);
    if (*is_nonblocking_) return {};
    if (until == kNever && deadline_ == kUnset) ask();
    return deadline_;
  }
  bool is_over() { return deadline() != kNever && base::now() >= deadline(); }

 private:
  static constexpr Time kUnset{};
  static constexpr Duration kUnasked = Duration::from_ms(5);

  void ask() {
    deadline_ = deadline_of(fd_, SO_RCVTIMEO);
    if (deadline_ != kNever && since_ != kUnset) deadline_.ns -= (base::now() - since_).ns;
  }

  int fd_;
  bool has_slept_ = false;  // or could have
  Time since_, deadline_ = kUnset;
  std::optional<bool> is_nonblocking_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_PATIENCE_H_
