// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process that ends closes its descriptors without a call that anybody could see. What must come
// before that comes last of all that exit() and quick_exit() do, but for libc's flush of its FILEs.
#include "shim/calls/exit.h"

#include <atomic>
#include <cstdlib>

#include "shim/calls.h"
#include "shim/fd_table.h"
#include "shim/real.h"
#include "stream/stream.h"

extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* library);

namespace ddpsock::shim {
namespace {

constinit std::atomic<bool> is_exiting{false};

void prepare(int fd) {
  const SocketUse use(fd);
  if (use && has_live_stream(use.phase()))
    use->stream.load(std::memory_order_acquire)->before_exit(fd);
}

void prepare_for_exit() {
  if (!is_any_ours() || is_vfork_child()) return;
  is_exiting.store(true, std::memory_order_relaxed);
  for (int fd = 0; fd < fds_end(); ++fd) prepare(fd);
}

// Registered before anybody else's, and as nobody's: those of a library run with its destructors,
// and other libraries' may still use their connections then.
[[gnu::constructor(102)]] void register_at_start() {
  __cxa_atexit([](void*) { prepare_for_exit(); }, nullptr, nullptr);
  at_quick_exit(prepare_for_exit);
}

}  // namespace

void prepare_again(int fd) {
  if (is_exiting.load(std::memory_order_relaxed)) [[unlikely]]
    prepare(fd);
}

void own_exit(int status) {
  prepare_for_exit();
  real.exit(status);
}

}  // namespace ddpsock::shim
