// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_SHIM_THREADS_H_
#define DDPSOCK_SHIM_THREADS_H_

#include <cstdint>

namespace ddpsock::shim {

// Which threads does this process have beside the caller that are not about to end? Without /proc
// the program's, if it has ever had one. Keeps errno; no allocation.
enum class OtherThreads : uint8_t { kNone, kLibrarys, kPrograms };
OtherThreads other_threads();

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_THREADS_H_
