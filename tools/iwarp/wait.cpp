// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/iwarp/wait.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "base/sys.h"

namespace ddpsock::iwarp {
namespace {

// poll() counts milliseconds in an int, and a signal or a clock set wrong must not hide a deadline.
constexpr int64_t kLongestPollMs = 1'000;
constexpr size_t kMostWishes = 4;

bool wait_for(std::span<pollfd> entries, Time deadline) {
  for (;;) {
    const Duration left = deadline - base::now();
    const int64_t ms =
        deadline == kNever ? kLongestPollMs : std::min(left.ceil_ms(), kLongestPollMs);
    if (base::sys.poll(entries.data(), entries.size(), static_cast<int>(ms)) != 0) return true;
    if (deadline != kNever && base::now() >= deadline) return false;
  }
}

short events_of(const engine::Need& need) {
  return static_cast<short>((need.wants_readable ? POLLIN : 0) |
                            (need.wants_writable ? POLLOUT : 0));
}

}  // namespace

bool wait_for(int fd, short events, Time deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  return wait_for({&entry, 1}, deadline);
}

bool wait_for(int fd, const engine::Need& need, Time deadline) {
  return wait_for(fd, events_of(need), std::min(deadline, need.deadline));
}

bool wait_for_any(std::span<const Wish> wishes, Time deadline) {
  assert(wishes.size() <= kMostWishes);
  std::array<pollfd, kMostWishes> entries;
  for (size_t i = 0; i < wishes.size(); ++i) {
    entries[i] = {.fd = wishes[i].fd, .events = events_of(wishes[i].need), .revents = 0};
    deadline = std::min(deadline, wishes[i].need.deadline);
  }
  return wait_for(std::span(entries).first(wishes.size()), deadline);
}

mpa::StartupState run(connecting::Handshake& handshake, int fd) {
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
