// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/wait.h"

#include <poll.h>

#include <algorithm>

#include "base/sys.h"

namespace ddpsock::iwarp {
namespace {

// poll() counts milliseconds in an int, and a signal or a clock set wrong must not hide a deadline.
constexpr int64_t kLongestPollMs = 1'000;

}  // namespace

bool wait_for(int fd, short events, Time deadline) {
  for (;;) {
    const Duration left = deadline - base::now();
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int64_t ms =
        deadline == kNever ? kLongestPollMs : std::min(left.ceil_ms(), kLongestPollMs);
    if (base::sys.poll(&entry, 1, static_cast<int>(ms)) != 0) return true;
    if (deadline != kNever && base::now() >= deadline) return false;
  }
}

bool wait_for(int fd, const engine::Need& need, Time deadline) {
  const short events =
      static_cast<short>((need.wants_readable ? POLLIN : 0) | (need.wants_writable ? POLLOUT : 0));
  return wait_for(fd, events, std::min(deadline, need.deadline));
}

mpa::StartupState run(engine::Handshake& handshake, int fd) {
  for (;;) {
    const engine::Need need = handshake.advance(base::now());
    switch (handshake.state()) {
      case mpa::StartupState::kAgreed:
      case mpa::StartupState::kFailed:
      case mpa::StartupState::kDeciding:
        return handshake.state();
      case mpa::StartupState::kSending:
      case mpa::StartupState::kReading:
        wait_for(fd, need, kNever);
    }
  }
}

}  // namespace ddpsock::iwarp
