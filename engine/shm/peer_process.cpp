// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/shm/peer_process.h"

#include <sys/uio.h>

#include <array>

namespace ddpsock::engine::shm {

bool PeerProcess::read(std::span<const RemoteRange> from, std::span<const MutBytes> to) const {
  std::array<iovec, kMostRanges + 1> local, remote;
  if (pid_ == 0 || from.size() > kMostRanges || to.size() > kMostRanges) return false;
  uint64_t found = ~secret_;
  size_t octets = sizeof found;
  for (size_t i = 0; i < to.size(); ++i) {
    local[i] = {to[i].data(), to[i].size()};
    octets += to[i].size();
  }
  for (size_t i = 0; i < from.size(); ++i)
    remote[i] = {reinterpret_cast<void*>(from[i].address), from[i].length};
  local[to.size()] = {&found, sizeof found};
  remote[from.size()] = {reinterpret_cast<void*>(address_), sizeof found};
  const ssize_t n = process_vm_readv(static_cast<pid_t>(pid_), local.data(), to.size() + 1,
                                     remote.data(), from.size() + 1, 0);
  return n >= 0 && static_cast<size_t>(n) == octets && found == secret_;
}

}  // namespace ddpsock::engine::shm
