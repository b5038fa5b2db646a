// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reading the memory of the process at the other end, at one copy and without its help. Only ever
// reading, and each read brings along a secret of the connection from where the peer has mapped it,
// out of the same address space in the same system call, and what lies there where our own mark
// does: so what was read is the peer's and not ours, whatever the process id means by now and
// whatever the process has become.
#ifndef DDPSOCK_SHM_PEER_PROCESS_H_
#define DDPSOCK_SHM_PEER_PROCESS_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace ddpsock::engine::shm {

// A range of another address space.
struct RemoteRange {
  uint64_t address = 0;
  uint64_t length = 0;
};
inline constexpr uint32_t kMostRanges = 16;

class PeerProcess {
 public:
  // Nobody: nothing can be read.
  PeerProcess() = default;
  // Process `pid` and where `secret` lies there, by the peer's word.
  PeerProcess(uint32_t pid, uint64_t address, uint64_t secret)
      : pid_(pid), address_(address), secret_(secret) {}

  bool is_somebody() const { return pid_ != 0; }

  // Whether that is true, and the kernel lets us (ptrace rules, seccomp).
  [[nodiscard]] bool can_read() const { return read({}, {}); }

  // Fills `to` from `from`, at most kMostRanges each, whose lengths may be the peer's word. False:
  // it was not the peer's, or not there, or not as much; `to` may have been written.
  [[nodiscard]] bool read(std::span<const RemoteRange> from, std::span<const MutBytes> to) const;

 private:
  uint32_t pid_ = 0;
  uint64_t address_ = 0;
  uint64_t secret_ = 0;
};

}  // namespace ddpsock::engine::shm

#endif  // DDPSOCK_SHM_PEER_PROCESS_H_
