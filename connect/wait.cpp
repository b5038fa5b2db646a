// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "connect/wait.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <span>

#include "base/sys.h"

namespace ddpsock::connecting {
namespace {

// poll() counts milliseconds in an int, and a clock set wrong must not hide a deadline.
constexpr int64_t kLongestPollMs = 1'000;
constexpr size_t kMostWishes = 4;

bool wait_for(std::span<pollfd> entries, Time deadline) {
  for (;;) {
    const int64_t left = deadline == kNever ? kLongestPollMs : (deadline - base::now()).ceil_ms();
    const auto ms = static_cast<int>(std::min(left, kLongestPollMs));
    if (base::sys.poll(entries.data(), entries.size(), ms) != 0) return true;
    if (deadline != kNever && base::now() >= deadline) return false;
  }
}

}  // namespace

bool wait_for(int fd, short events, Time deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  return wait_for({&entry, 1}, deadline);
}

bool wait_for(std::initializer_list<Wish> wishes, Time deadline) {
  assert(wishes.size() <= kMostWishes);
  std::array<pollfd, kMostWishes> entries;
  size_t count = 0;
  for (const auto& [fd, need] : wishes) {
    const int events = (need.wants_readable ? POLLIN : 0) | (need.wants_writable ? POLLOUT : 0);
    entries[count++] = {.fd = fd, .events = static_cast<short>(events), .revents = 0};
    deadline = std::min(deadline, need.deadline);
  }
  return wait_for(std::span(entries).first(count), deadline);
}

}  // namespace ddpsock::connecting
