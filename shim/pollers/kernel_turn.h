// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// When the kernel is asked about an epoll set in any case, although there are bytes in memory:
// every 0.1 to 2 ms, so that what only it knows of is not left out for long. Zero memory: at once.
// Any thread; two that ask at once may both do so.
#ifndef DDPSOCK_SHIM_POLLERS_KERNEL_TURN_H_
#define DDPSOCK_SHIM_POLLERS_KERNEL_TURN_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::shim {

class KernelTurn {
 public:
  // Is it time? The caller asks then.
  bool is_due();
  // It was asked, from is_due() until now.
  void note_asked();

 private:
  std::atomic<int64_t> asked_at_, ask_again_at_;  // nanoseconds
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_KERNEL_TURN_H_
