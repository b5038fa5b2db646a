// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The one result type. Errors are values: returned, never thrown, never errno below the libc edge.
#ifndef DDPSOCK_BASE_RESULT_H_
#define DDPSOCK_BASE_RESULT_H_

#include <expected>

namespace ddpsock {

// An errno value, for the few layers that talk to the kernel. Protocol layers use enums of their
// own.
enum class Errno : int {};
constexpr int to_int(Errno e) {
  return static_cast<int>(e);
}

template <typename T, typename E = Errno>
using Result = std::expected<T, E>;

template <typename E = Errno>
using Status = std::expected<void, E>;

template <typename E>
constexpr std::unexpected<E> fail(E e) {
  return std::unexpected<E>(e);
}
inline std::unexpected<Errno> fail_errno(int e) {
  return std::unexpected<Errno>(Errno{e});
}

}  // namespace ddpsock

#endif  // DDPSOCK_BASE_RESULT_H_
