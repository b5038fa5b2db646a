// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// syscall(), by which programs reach the kernel past libc's own functions: Node closes its sockets
// so. A table says which numbers concern sockets; those are served as by the wrapper of the same
// name, but with the kernel's arguments, and they are no cancellation points. All others are the
// instruction itself: without a frame, so that vfork, and clone with a stack, may return here
// twice, and from the first moment on.
//
// Not served: fork, vfork, clone and clone3 (a child is known by its generation, base/process.h);
// io_uring_enter and register; who makes a ring gets plain connections (rings.h). A number to be
// served is added to a list below and to the switch of its kind.
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/select.h>
#include <time.h>

#include <array>

#include "base/cancellation.h"
#include "base/keep_errno.h"
#include "base/kernel_call.h"
#include "shim/calls.h"
#include "shim/calls/listeners.h"
#include "shim/calls/seccomp.h"
#include "shim/fd_table.h"
#include "shim/libc_edge.h"
#include "shim/policy/rings.h"
#include "shim/pollers/readiness.h"
#include "shim/pollers/watched_sets.h"
#include "shim/program_memory.h"

namespace ddpsock::shim {
namespace {

// On a socket of ours only: what it does depends on the stream, or on nothing but its descriptor.
constexpr long kOnSockets[] = {
    SYS_read,     SYS_write,  SYS_readv,    SYS_writev, SYS_preadv2, SYS_pwritev2,
    SYS_recvfrom, SYS_sendto, SYS_sendfile, SYS_close,  SYS_ioctl,   SYS_shutdown,
};
// Whatever they are called on, once there is a socket of ours.
constexpr long kPollers[] = {
    SYS_poll,      SYS_ppoll,      SYS_select,      SYS_pselect6,
    SYS_epoll_ctl, SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2,
};
constexpr long kOthers[] = {
    SYS_socket,   SYS_socketpair,   SYS_listen,         SYS_accept,
    SYS_accept4,  SYS_connect,      SYS_recvmsg,        SYS_recvmmsg,
    SYS_sendmsg,  SYS_sendmmsg,     SYS_splice,         SYS_dup,
    SYS_dup2,     SYS_dup3,         SYS_fcntl,          SYS_close_range,
    SYS_execve,   SYS_execveat,     SYS_getsockopt,     SYS_setsockopt,
    SYS_mlockall, SYS_epoll_create, SYS_epoll_create1,  SYS_prctl,
    SYS_seccomp,  SYS_exit_group,   SYS_io_uring_setup,
};
// Give a descriptor whose number may have been that of a socket which was closed unseen.
constexpr long kCreators[] = {
    SYS_open,       SYS_openat,       SYS_openat2,        SYS_creat,
    SYS_eventfd,    SYS_eventfd2,     SYS_timerfd_create, SYS_signalfd,
    SYS_signalfd4,  SYS_memfd_create, SYS_inotify_init,   SYS_inotify_init1,
    SYS_pidfd_open, SYS_pidfd_getfd,  SYS_pipe,           SYS_pipe2,
};

enum CallKind : uint8_t { kNotServed, kOnSocket, kPoller, kOther, kCreator };
constexpr size_t kNumbers = 512;
using CallKinds = std::array<CallKind, kNumbers>;

template <size_t n>
constexpr void set(CallKinds& kinds, const long (&numbers)[n], CallKind kind) {
  for (const long number : numbers) kinds[static_cast<size_t>(number)] = kind;
}

constexpr CallKinds make_kinds() {
  CallKinds kinds{};
  set(kinds, kOnSockets, kOnSocket);
  set(kinds, kPollers, kPoller);
  set(kinds, kOthers, kOther);
  set(kinds, kCreators, kCreator);
  return kinds;
}

}  // namespace

extern "C" {
extern const CallKinds ddpsock_kinds_of_calls __attribute__((visibility("hidden")));
__attribute__((used)) constinit const CallKinds ddpsock_kinds_of_calls = make_kinds();
long ddpsock_raw_call(long number, long a, long b, long c, long d, long e, long f)
    __attribute__((visibility("hidden"), used));
}

// As libc's, and exported in its place. A served number is a jump to ddpsock_raw_call with all
// arguments where they are.
asm(R"(
        .text
        .globl  syscall
        .type   syscall, @function
        .p2align 4
syscall:
        .cfi_startproc
        endbr64
        cmpq    $511, %rdi
        ja      1f
        leaq    ddpsock_kinds_of_calls(%rip), %rax
        cmpb    $0, (%rax,%rdi)
        jne     ddpsock_raw_call
1:      movq    %rdi, %rax
        movq    %rsi, %rdi
        movq    %rdx, %rsi
        movq    %rcx, %rdx
        movq    %r8, %r10
        movq    %r9, %r8
        movq    8(%rsp), %r9
        syscall
        cmpq    $-4095, %rax
        jae     2f
        ret
2:      negl    %eax
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        call    __errno_location@PLT
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        movl    %ecx, (%rax)
        movq    $-1, %rax
        ret
        .cfi_endproc
        .size   syscall, . - syscall
)");

namespace {

// Arguments as the kernel would take them out of their registers.
struct RawCall {
  long number;
  long a, b, c, d, e, f;
  const void* caller = nullptr;

  long instruction() const { return base::kernel_call(number, a, b, c, d, e, f); }
};

template <typename T>
T* pointer(long value) {
  return reinterpret_cast<T*>(value);
}
int number_of(long value) {
  return static_cast<int>(value);
}
size_t size_of(long value) {
  return static_cast<size_t>(value);
}

// REQUIRES: a socket of ours.
long on_socket(const RawCall& r) {
  const int fd = number_of(r.a);
  switch (r.number) {
    case SYS_read:
      return chosen_read(fd, pointer<void>(r.b), size_of(r.c));
    case SYS_write:
      return chosen_write(fd, pointer<void>(r.b), size_of(r.c));
    case SYS_readv:
      return chosen_readv(fd, pointer<iovec>(r.b), number_of(r.c));
    case SYS_writev:
      return chosen_writev(fd, pointer<iovec>(r.b), number_of(r.c));
    // The kernel's have an upper half of the offset, which means nothing where a long holds it all.
    case SYS_preadv2:
      return chosen_preadv2(fd, pointer<iovec>(r.b), number_of(r.c), r.d, number_of(r.f));
    case SYS_pwritev2:
      return chosen_pwritev2(fd, pointer<iovec>(r.b), number_of(r.c), r.d, number_of(r.f));
    case SYS_recvfrom:
      return chosen_recvfrom(fd, pointer<void>(r.b), size_of(r.c), number_of(r.d),
                             pointer<sockaddr>(r.e), pointer<socklen_t>(r.f));
    case SYS_sendto:
      return chosen_sendto(fd, pointer<void>(r.b), size_of(r.c), number_of(r.d),
                           pointer<sockaddr>(r.e), static_cast<socklen_t>(r.f));
    case SYS_sendfile:
      return chosen_sendfile(fd, number_of(r.b), pointer<off_t>(r.c), size_of(r.d));
    case SYS_close:
      return chosen_close(fd);
    case SYS_ioctl:
      return chosen_ioctl(fd, static_cast<unsigned long>(r.b), pointer<void>(r.c));
    case SYS_shutdown:
      return chosen_shutdown(fd, number_of(r.b));
  }
  return r.instruction();
}

// The kernel's sets of signals are shorter than libc's, and it asks how long.
constexpr long kKernelSigsetSize = 8;

// Unlike libc's, the kernel's ppoll and pselect6 write the time that is left back.
template <typename Wait>
long leaving_rest(timespec* timeout, Wait wait) {
  const PollDeadline deadline = PollDeadline::after(timeout);
  const long result = wait();
  timespec left;
  const base::KeepErrno keep;
  // The kernel lets it be where it cannot write, and is asked to before we do.
  if (timeout != nullptr && deadline.left(left) != nullptr &&
      base::kernel_call(SYS_clock_gettime, CLOCK_MONOTONIC, timeout) == 0)
    *timeout = left;
  return result;
}

// Is what a call names by a pointer there to be read? Unlike libc's functions the kernel reads the
// times itself, and says EFAULT.
template <typename T>
bool is_there(const T* p) {
  return p == nullptr || is_readable(p, sizeof(T));
}

long ppoll_of(const RawCall& r) {
  if (r.d != 0 && r.e != kKernelSigsetSize) return r.instruction();
  if (!is_there(pointer<const timespec>(r.c))) return r.instruction();
  auto* const timeout = pointer<timespec>(r.c);
  return leaving_rest(timeout, [&] {
    return own_ppoll(pointer<pollfd>(r.a), static_cast<nfds_t>(r.b), timeout,
                     pointer<sigset_t>(r.d));
  });
}

long pselect_of(const RawCall& r) {
  struct Mask {
    const sigset_t* mask;
    long size;
  };
  const auto* const packed = pointer<const Mask>(r.f);
  if (!is_there(packed) || !is_there(pointer<const timespec>(r.e))) return r.instruction();
  const sigset_t* const mask = packed != nullptr ? packed->mask : nullptr;
  if (mask != nullptr && packed->size != kKernelSigsetSize) return r.instruction();
  auto* const timeout = pointer<timespec>(r.e);
  return leaving_rest(timeout, [&] {
    return own_pselect(number_of(r.a), pointer<fd_set>(r.b), pointer<fd_set>(r.c),
                       pointer<fd_set>(r.d), timeout, mask);
  });
}

long epoll_pwait_of(const RawCall& r) {
  if (r.e != 0 && r.f != kKernelSigsetSize) return r.instruction();
  auto* const events = pointer<epoll_event>(r.b);
  if (r.number == SYS_epoll_pwait)
    return own_epoll_pwait(number_of(r.a), events, number_of(r.c), number_of(r.d),
                           pointer<sigset_t>(r.e));
  if (!is_there(pointer<const timespec>(r.d))) return r.instruction();
  return own_epoll_pwait2(number_of(r.a), events, number_of(r.c), pointer<timespec>(r.d),
                          pointer<sigset_t>(r.e));
}

long poller(const RawCall& r) {
  switch (r.number) {
    case SYS_poll:
      return own_poll(pointer<pollfd>(r.a), static_cast<nfds_t>(r.b), number_of(r.c));
    case SYS_ppoll:
      return ppoll_of(r);
    case SYS_select:
      if (!is_there(pointer<const timeval>(r.e))) break;
      return own_select(number_of(r.a), pointer<fd_set>(r.b), pointer<fd_set>(r.c),
                        pointer<fd_set>(r.d), pointer<timeval>(r.e));
    case SYS_pselect6:
      return pselect_of(r);
    case SYS_epoll_ctl:
      return own_epoll_ctl(number_of(r.a), number_of(r.b), number_of(r.c),
                           pointer<epoll_event>(r.d));
    case SYS_epoll_wait:
      return own_epoll_wait(number_of(r.a), pointer<epoll_event>(r.b), number_of(r.c),
                            number_of(r.d));
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
      return epoll_pwait_of(r);
  }
  return r.instruction();
}

// A program that must be in DDPMODE has to do without: those that can use sockets otherwise do.
long set_up_ring(const RawCall& r) {
  const bool is_for_sockets = is_policy_active() && is_ring_for_sockets(r.caller);
  if (is_for_sockets && !may_choose_nothing()) return fail(EPERM);
  const long ring = r.instruction();
  if (ring < 0) return ring;
  drop_stale_fd(number_of(ring));
  if (is_for_sockets) {
    note_ring(Maker::kSuchCode);
    give_way_to_rings();
  }
  return ring;
}

long on_descriptor(const RawCall& r) {
  const int fd = number_of(r.a);
  switch (r.number) {
    case SYS_dup:
      return own_dup(fd);
    case SYS_dup2:
      return own_dup2(fd, number_of(r.b));
    case SYS_dup3:
      return own_dup3(fd, number_of(r.b), number_of(r.c));
    case SYS_fcntl:
      // libc gives some others a meaning of its own.
      if (r.b == F_DUPFD || r.b == F_DUPFD_CLOEXEC || r.b == F_SETFL)
        return own_fcntl(fd, number_of(r.b), pointer<void>(r.c));
      break;
    case SYS_close_range:
      return own_close_range(static_cast<unsigned>(r.a), static_cast<unsigned>(r.b),
                             number_of(r.c));
    case SYS_epoll_create:
      return own_epoll_create(fd);
    case SYS_epoll_create1:
      return own_epoll_create1(fd);
    case SYS_execve:
      return own_execve(pointer<char>(r.a), pointer<char* const>(r.b), pointer<char* const>(r.c));
    case SYS_execveat:
      return own_execveat(fd, pointer<char>(r.b), pointer<char* const>(r.c),
                          pointer<char* const>(r.d), number_of(r.e));
    case SYS_io_uring_setup:
      return set_up_ring(r);
    case SYS_mlockall:
      return own_mlockall(fd);
    case SYS_exit_group:
      own_exit(fd);
      break;
    case SYS_prctl:
      return own_prctl(fd, static_cast<unsigned long>(r.b), static_cast<unsigned long>(r.c),
                       static_cast<unsigned long>(r.d), static_cast<unsigned long>(r.e));
    case SYS_seccomp:
      // What is refused whatever the filter says is how programs ask what the kernel can do.
      if (r.a == SECCOMP_SET_MODE_STRICT && r.b == 0 && r.c == 0)
        before_seccomp(SECCOMP_MODE_STRICT, nullptr);
      if (r.a == SECCOMP_SET_MODE_FILTER && r.c != 0)
        before_seccomp(SECCOMP_MODE_FILTER, pointer<void>(r.c));
      break;
  }
  return r.instruction();
}

long on_any(const RawCall& r) {
  const int fd = number_of(r.a);
  switch (r.number) {
    case SYS_socket:
      return own_socket(fd, number_of(r.b), number_of(r.c));
    case SYS_socketpair:
      return own_socketpair(fd, number_of(r.b), number_of(r.c), pointer<int>(r.d));
    case SYS_listen:
      return own_listen(fd, number_of(r.b));
    case SYS_accept:
      return own_accept(fd, pointer<sockaddr>(r.b), pointer<socklen_t>(r.c));
    case SYS_accept4:
      return own_accept4(fd, pointer<sockaddr>(r.b), pointer<socklen_t>(r.c), number_of(r.d));
    case SYS_connect:
      return own_connect(fd, pointer<sockaddr>(r.b), static_cast<socklen_t>(r.c));
    case SYS_recvmsg:
      return own_recvmsg(fd, pointer<msghdr>(r.b), number_of(r.c));
    case SYS_recvmmsg:
      return own_recvmmsg(fd, pointer<mmsghdr>(r.b), static_cast<unsigned>(r.c), number_of(r.d),
                          pointer<timespec>(r.e));
    case SYS_sendmsg:
      return own_sendmsg(fd, pointer<msghdr>(r.b), number_of(r.c));
    case SYS_sendmmsg:
      return own_sendmmsg(fd, pointer<mmsghdr>(r.b), static_cast<unsigned>(r.c), number_of(r.d));
    case SYS_splice:
      return own_splice(fd, pointer<off_t>(r.b), number_of(r.c), pointer<off_t>(r.d), size_of(r.e),
                        static_cast<unsigned>(r.f));
    case SYS_getsockopt:
      return own_getsockopt(fd, number_of(r.b), number_of(r.c), pointer<void>(r.d),
                            pointer<socklen_t>(r.e));
    case SYS_setsockopt:
      return own_setsockopt(fd, number_of(r.b), number_of(r.c), pointer<void>(r.d),
                            static_cast<socklen_t>(r.e));
  }
  return on_descriptor(r);
}

long create(const RawCall& r) {
  const long result = r.instruction();
  if (result < 0 || !is_any_ours()) return result;
  if (r.number == SYS_pipe || r.number == SYS_pipe2) {
    for (int i = 0; i < 2; ++i) drop_stale_fd(pointer<int>(r.a)[i]);
  } else {
    drop_stale_fd(number_of(result));
    forget_set(number_of(result));
  }
  return result;
}

}  // namespace

long ddpsock_raw_call(long number, long a, long b, long c, long d, long e, long f) {
  const RawCall r{number, a, b, c, d, e, f, __builtin_return_address(0)};
  const CallKind kind = ddpsock_kinds_of_calls[static_cast<size_t>(number)];
  if (kind == kCreator) return create(r);
  if (kind == kOnSocket ? !is_ours(number_of(a)) : kind == kPoller && !is_any_ours())
    return r.instruction();
  // Not guarded: of a vfork child that executes a program, or ends, nobody would end the guard, and
  // the thread is its parent's.
  if (number == SYS_execve || number == SYS_execveat) return on_descriptor(r);
  if (number == SYS_exit_group) return on_any(r);
  const base::UncancelledCall whole;
  return kind == kOnSocket ? on_socket(r) : kind == kPoller ? poller(r) : on_any(r);
}

}  // namespace ddpsock::shim
