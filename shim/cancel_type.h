// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads that a program lets be cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS, iperf3
// does): not at one of ours. In a program that has such threads every call on a descriptor is
// cancelled only where a deferred one is.
#ifndef DDPSOCK_SHIM_CANCEL_TYPE_H_
#define DDPSOCK_SHIM_CANCEL_TYPE_H_

#include <type_traits>

#include "base/cancellation.h"

namespace ddpsock::shim {

// The type that the thread had before; restore_cancellation() may not return.
int defer_cancellation();
void restore_cancellation(int type);

// Nothing is destroyed here: a function that an unwinder has to stop in ends the program if it is
// left at another place than a call. A handler that jumps out leaves the thread deferred.
template <typename Call>
auto whole(Call call) {
  if (!base::is_any_asynchronous.load(std::memory_order_relaxed)) [[likely]]
    return call();
  const int type = defer_cancellation();
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    restore_cancellation(type);
  } else {
    const auto result = call();
    restore_cancellation(type);
    return result;
  }
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CANCEL_TYPE_H_
