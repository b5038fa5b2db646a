// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A system call by the instruction itself. The library defines libc's syscall() for its programs
// (shim/calls/raw_calls.cpp); what must reach the kernel whatever the number is comes here instead.
#ifndef DDPSOCK_BASE_KERNEL_CALL_H_
#define DDPSOCK_BASE_KERNEL_CALL_H_

#include <errno.h>
#include <sys/syscall.h>

#include <type_traits>

#ifndef __x86_64__
#error "the system call instruction of this machine is not known here"
#endif

namespace ddpsock::base {

template <typename T>
long to_register(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else if constexpr (std::is_null_pointer_v<T>) {
    return 0;
  } else {
    return static_cast<long>(value);
  }
}

// As libc's syscall(): -1 and errno on an error. Not a cancellation point; async-signal-safe.
inline long kernel_call_of_longs(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  constexpr long kMostErrors = 4095;
  if (result < 0 && result >= -kMostErrors) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

template <typename A = int, typename B = int, typename C = int, typename D = int, typename E = int,
          typename F = int>
long kernel_call(long number, A a = 0, B b = 0, C c = 0, D d = 0, E e = 0, F f = 0) {
  return kernel_call_of_longs(number, to_register(a), to_register(b), to_register(c),
                              to_register(d), to_register(e), to_register(f));
}

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_KERNEL_CALL_H_
