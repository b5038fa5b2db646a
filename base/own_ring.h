// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The io_uring of the library's own thread, which is not the program's.
#ifndef DDPSOCK_BASE_OWN_RING_H_
#define DDPSOCK_BASE_OWN_RING_H_

#include <atomic>

namespace ddpsock::base {

inline constinit std::atomic<int> own_ring{-1};  // its descriptor

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_OWN_RING_H_
