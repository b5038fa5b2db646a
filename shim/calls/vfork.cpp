// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// vfork. A child that is killed inside a call on a stream leaves in its parent's memory what the
// call held, and in the parent's thread the guards that would give it back: on a stack that is the
// parent's again as soon as this returns. They are ended here, as where a signal handler jumps out
// of a call.
#include <errno.h>
#include <sys/syscall.h>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "base/process.h"
#include "base/unfinished.h"
#include "shim/brief_use.h"
#include "shim/fd_table.h"

using ddpsock::base::Unfinished;
using ddpsock::shim::BriefUse;

namespace {

struct Guards {
  Unfinished* innermost;
  Unfinished* const* where;  // the thread keeps it
};

}  // namespace

extern "C" {

[[gnu::visibility("hidden"), gnu::used]] Guards ddpsock_before_vfork() {
  // The child, whose memory this is, would be taken for the thread.
  if (ddpsock::shim::is_any_ours()) static_cast<void>(ddpsock::base::thread_name());
  return {Unfinished::innermost_of_thread(), Unfinished::place_of_innermost()};
}

// Runs below the stack that the child has used.
[[gnu::visibility("hidden"), gnu::used]] void ddpsock_after_vfork(const Unfinished* before) {
  const ddpsock::base::KeepErrno keep;
  const ddpsock::base::Uncancelled whole;  // nothing unwinds beyond here
  // Nobody calls vfork inside one: the child has been killed there.
  if (BriefUse::frame_of_thread() != nullptr) BriefUse::leave();
  const Unfinished* known = Unfinished::innermost_of_thread();
  while (known != nullptr && known != before) known = known->outer();
  // Not so where the child has jumped out of what this thread is inside.
  while (known == before && Unfinished::innermost_of_thread() != before)
    Unfinished::innermost_of_thread()->leave();
}

[[gnu::visibility("hidden"), gnu::used]] int ddpsock_vfork_failed(int error) {
  errno = error;
  return -1;
}
}

// The return address waits in a register while the child returns over its place on the stack. In
// the parent nothing is pushed there until the guards, which are the lowest of what the child has
// left, lie above the stack.
asm(R"(
  .text
  .globl vfork, __vfork
  .type vfork, @function
vfork:
__vfork:
  .cfi_startproc
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call ddpsock_before_vfork
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  movq %rax, %rsi
  movq %rdx, %r8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  .cfi_register %rip, %rdi
  movl $58, %eax
  syscall
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rip, 0
  testl %eax, %eax
  js 2f
  jz 1f
  movq (%r8), %rcx
  cmpq %rcx, %rsi
  je 1f
  movq %rsp, %rdx
  cmpq %rsp, %rcx
  cmovaq %rsp, %rcx
  leaq -512(%rcx), %rcx
  andq $-16, %rcx
  movq %rcx, %rsp
  .cfi_def_cfa %rdx, 8
  pushq %rdx
  pushq %rax
  movq %rsi, %rdi
  call ddpsock_after_vfork
  popq %rax
  popq %rsp
  .cfi_def_cfa %rsp, 8
1:
  ret
2:
  negl %eax
  movl %eax, %edi
  jmp ddpsock_vfork_failed
  .cfi_endproc
  .size vfork, . - vfork
)");
static_assert(SYS_vfork == 58);
