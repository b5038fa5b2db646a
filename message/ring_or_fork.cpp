// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/ring_or_fork.h"

#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/cancellation.h"
#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/own_ring.h"
#include "base/process.h"
#include "base/sys.h"

namespace ddpsock::message {
namespace {

// In the upper half whose count it is: what a child has copied of its parent's is nothing.
constinit std::atomic<uint64_t> forks_or_ring{0};
constexpr uint32_t kRing = ~0u;  // in place of a number of forks
[[gnu::tls_model("initial-exec")]] constinit thread_local bool is_fork_counted = false;

// next(count) is what it becomes; nothing: not now.
template <typename Next>
bool change_count(Next next) {
  const uint64_t own = uint64_t{base::process_generation()} << 32;
  uint64_t before = forks_or_ring.load();
  for (;;) {
    const uint32_t count = before >> 32 == own >> 32 ? static_cast<uint32_t>(before) : 0;
    const std::optional<uint32_t> after = next(count);
    if (!after) return false;
    if (forks_or_ring.compare_exchange_weak(before, own | *after)) return true;
  }
}

template <typename Next>
bool await_change(Next next) {
  constexpr int kMostMs = 1'000;
  const base::Uncancelled whole;
  for (int waited = 0; !change_count(next); ++waited) {
    if (waited == kMostMs) return false;
    base::sys.poll(nullptr, 0, 1);
  }
  return true;
}

using Count = std::optional<uint32_t>;

void before_fork() {
  const base::KeepErrno keep;
  is_fork_counted =
      await_change([](uint32_t n) { return n != kRing ? Count(n + 1) : std::nullopt; });
}
void after_fork() {
  if (!std::exchange(is_fork_counted, false)) return;
  (void)change_count([](uint32_t n) { return Count(n - 1); });
}
void after_fork_in_child() {
  const base::KeepErrno keep;
  const int fd = base::own_ring.exchange(-1);
  if (fd >= 0 && base::is_ring(fd)) base::close_own(fd);
  is_fork_counted = false;
}

}  // namespace

bool begin_ring() {
  static constinit std::atomic<bool> has_handlers{false};
  if (!has_handlers.exchange(true)) pthread_atfork(before_fork, after_fork, after_fork_in_child);
  return await_change([](uint32_t n) { return n == 0 ? Count(kRing) : std::nullopt; });
}
void end_ring() {
  (void)change_count([](uint32_t) { return Count(0); });
}

}  // namespace ddpsock::message
