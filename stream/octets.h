// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the wire carries while the stream lies in memory: octets that are counted and say nothing.
#ifndef DDPSOCK_STREAM_OCTETS_H_
#define DDPSOCK_STREAM_OCTETS_H_

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/cancellation.h"
#include "base/effort.h"
#include "base/kernel_call.h"

namespace ddpsock::engine {

inline constexpr size_t kMostFiller = 64 * 1024;
// Without a look at the rest: more than the sockets of a peer that keeps the rules hold, by
// default. It says how many there are, and may send them as fast as they are taken.
inline constexpr uint64_t kMostOctetsAtOnce = uint64_t{16} << 20;
// Only ever zeros: the source of filler, and where octets would go if the kernel copied them.
inline constinit uint8_t octets_memory[kMostFiller] = {};

// As recv(): takes up to `n` octets, without a copy. Not a cancellation point: what is taken is
// accounted for.
inline ssize_t discard_octets(int fd, uint64_t n, int flags) {
  ++base::effort.system_calls;
  return base::kernel_call(SYS_recvfrom, fd, octets_memory,
                           static_cast<size_t>(std::min<uint64_t>(n, kMostFiller)),
                           MSG_TRUNC | flags, nullptr, nullptr);
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_OCTETS_H_
