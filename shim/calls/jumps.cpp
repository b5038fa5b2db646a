// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// longjmp and its like out of a signal handler that interrupted a call on a stream: what the call
// holds is given back first, where its frame is certainly left. A handler that jumps within itself,
// on whatever stack, or to a coroutine with a stack of its own, ends no call. setcontext and
// swapcontext are not looked at.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>

#include <cstdint>

#include "base/fd.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "base/unfinished.h"
#include "shim/brief_use.h"
#include "shim/calls.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

// Where the jump leads, as glibc keeps it: rotated, and exclusive-or with a secret of the thread's.
uintptr_t stack_pointer_of(const __jmp_buf_tag* target) {
  constexpr int kStackPointer = 6, kRotation = 17;
  auto mangled = static_cast<uintptr_t>(target->__jmpbuf[kStackPointer]);
  uintptr_t secret;
  asm("mov %%fs:0x30, %0" : "=r"(secret));
  mangled = mangled >> kRotation | mangled << (64 - kRotation);
  return mangled ^ secret;
}

// Reads hexadecimal digits from /proc/self/maps; a handler may be all that runs.
class Mappings {
 public:
  Mappings()
      : fd_(static_cast<int>(
            base::kernel_call(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC))) {}

  // Do both lie in one? Where that cannot be read (no descriptor is free, or there is no /proc):
  // a stack is seldom larger than this.
  bool have_in_one(uintptr_t a, uintptr_t b) {
    constexpr uintptr_t kUsualStack = 8 << 20;
    if (!fd_.is_valid()) return b - a < kUsualStack;
    uintptr_t begin, end;
    while (next(begin, end)) {
      if (a >= begin && a < end) return b >= begin && b < end;
    }
    return false;
  }

 private:
  int get() {
    if (at_ == size_) {
      const ssize_t n =
          fd_.is_valid() ? base::kernel_call(SYS_read, fd_.get(), bytes_, sizeof bytes_) : 0;
      if (n <= 0) return -1;
      at_ = 0;
      size_ = static_cast<size_t>(n);
    }
    return static_cast<unsigned char>(bytes_[at_++]);
  }
  bool number(uintptr_t& value) {
    value = 0;
    for (;;) {
      const int c = get();
      if (c >= '0' && c <= '9') {
        value = value << 4 | static_cast<uintptr_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value << 4 | static_cast<uintptr_t>(c - 'a' + 10);
      } else {
        return c >= 0;
      }
    }
  }
  bool next(uintptr_t& begin, uintptr_t& end) {
    if (!number(begin) || !number(end)) return false;
    for (int c = 0; c != '\n';)
      if ((c = get()) < 0) return false;
    return true;
  }

  base::UniqueFd fd_;
  size_t at_ = 0, size_ = 0;
  char bytes_[1024];
};

bool is_on_signal_stack(uintptr_t address) {
  stack_t stack{};
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) != 0) return false;
  const auto begin = reinterpret_cast<uintptr_t>(stack.ss_sp);
  return address >= begin && address < begin + stack.ss_size;
}

// A frame of the stack that the jump leads to, between where it leads and where it begins; or
// begins on the signal stack.
bool is_left(const void* call, uintptr_t target) {
  const auto frame = reinterpret_cast<uintptr_t>(call);
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return frame < target && is_on_signal_stack(frame) == is_on_signal_stack(target) &&
         (here < frame || is_on_signal_stack(here)) && Mappings().have_in_one(frame, target);
}

void leave_calls(const __jmp_buf_tag* target_frame) {
  base::Unfinished* call = base::Unfinished::innermost_of_thread();
  const void* brief = BriefUse::frame_of_thread();
  if (call == nullptr && brief == nullptr) [[likely]]
    return;
  const base::KeepErrno keep;
  const uintptr_t target = stack_pointer_of(target_frame);
  if (brief != nullptr && is_left(brief, target)) BriefUse::leave();
  while (call != nullptr && is_left(call, target)) {
    call->leave();
    call = base::Unfinished::innermost_of_thread();
  }
}

}  // namespace

void own_longjmp(__jmp_buf_tag* target, int value) {
  leave_calls(target);
  real.longjmp(target, value);
}

void own_longjmp_chk(__jmp_buf_tag* target, int value) {
  leave_calls(target);
  real.longjmp_chk(target, value);
}

}  // namespace ddpsock::shim
