// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The streams in shared memory among the descriptors that a poll() or select() names, watched for a
// moment before the kernel is asked to sleep. What comes meanwhile has a bell, so the kernel finds
// it too: nothing here is reported, only the sleep is saved.
#ifndef DDPSOCK_SHIM_POLLERS_MEMORY_GLANCES_H_
#define DDPSOCK_SHIM_POLLERS_MEMORY_GLANCES_H_

#include <array>
#include <optional>

#include "shim/fd_table.h"

namespace ddpsock::shim {

class MemoryGlances {
 public:
  // `fd` is to be polled for reading. More than a few descriptors are not worth a look each.
  void add(int fd);
  // True when one of them has bytes; false after about 20 us, or at once where it does not pay.
  bool await_bytes() const;

 private:
  static constexpr unsigned kMost = 16;

  bool is_any_with_bytes() const;
  uint32_t peer_cpu() const;

  std::array<std::optional<SocketUse>, kMost> uses_;
  unsigned count_ = 0;
  bool has_overflown_ = false;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_MEMORY_GLANCES_H_
