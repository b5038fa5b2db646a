// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shm/peer_process.h"

#include <sys/uio.h>

#include <array>

#include "shm/own_memory.h"

namespace ddpsock::engine::shm {

bool PeerProcess::read(std::span<const RemoteRange> from, std::span<const MutBytes> to) const {
  std::array<iovec, kMostRanges + 2> local, remote;
  if (pid_ == 0 || from.size() > kMostRanges || to.size() > kMostRanges) return false;
  uint64_t found = ~secret_;
  size_t octets = sizeof found;
  uint64_t asked = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    local[i] = {to[i].data(), to[i].size()};
    octets += to[i].size();
  }
  // A peer whose ranges are longer would have us take its bytes for the proof.
  for (const RemoteRange& range : from) {
    if (range.length > octets - sizeof found - asked) return false;
    asked += range.length;
  }
  if (asked != octets - sizeof found) return false;
  for (size_t i = 0; i < from.size(); ++i)
    remote[i] = {reinterpret_cast<void*>(from[i].address), from[i].length};
  local[to.size()] = {&found, sizeof found};
  remote[from.size()] = {reinterpret_cast<void*>(address_), sizeof found};
  // Last: where a peer has nothing the kernel reads no further.
  const OwnMark mark = OwnMark::get();
  uint64_t theirs = 0;
  local[to.size() + 1] = {&theirs, sizeof theirs};
  remote[from.size() + 1] = {reinterpret_cast<void*>(mark.address), sizeof theirs};
  const ssize_t n = process_vm_readv(static_cast<pid_t>(pid_), local.data(), to.size() + 2,
                                     remote.data(), from.size() + 2, 0);
  if (n < 0 || static_cast<size_t>(n) < octets || found != secret_) return false;
  return is_own_memory_a_peers() || (mark.word != 0 && theirs != mark.word);
}

}  // namespace ddpsock::engine::shm
