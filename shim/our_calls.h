// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The system calls that the library may make in a call of the program's on a stream: in its start,
// in moving bytes, in the looks after its peer's and its relatives' lives, and in its end. A filter
// of the program's, which does not know of them, is judged by them.
#ifndef DDPSOCK_SHIM_OUR_CALLS_H_
#define DDPSOCK_SHIM_OUR_CALLS_H_

#include <sys/syscall.h>

namespace ddpsock::shim {

struct OurCall {
  int number;
  const char* name;
};
#define DDPSOCK_OUR_CALL(name) \
  OurCall {                    \
    SYS_##name, #name          \
  }

// The vDSO's among them, which is not always there.
inline constexpr OurCall kNeededCalls[] = {
    DDPSOCK_OUR_CALL(sendto),         DDPSOCK_OUR_CALL(sendmsg),
    DDPSOCK_OUR_CALL(recvfrom),       DDPSOCK_OUR_CALL(recvmsg),
    DDPSOCK_OUR_CALL(getsockopt),     DDPSOCK_OUR_CALL(setsockopt),
    DDPSOCK_OUR_CALL(getsockname),    DDPSOCK_OUR_CALL(getpeername),
    DDPSOCK_OUR_CALL(shutdown),       DDPSOCK_OUR_CALL(poll),
    DDPSOCK_OUR_CALL(ppoll),          DDPSOCK_OUR_CALL(fcntl),
    DDPSOCK_OUR_CALL(ioctl),          DDPSOCK_OUR_CALL(futex),
    DDPSOCK_OUR_CALL(mmap),           DDPSOCK_OUR_CALL(munmap),
    DDPSOCK_OUR_CALL(mremap),         DDPSOCK_OUR_CALL(madvise),
    DDPSOCK_OUR_CALL(mprotect),       DDPSOCK_OUR_CALL(sched_yield),
    DDPSOCK_OUR_CALL(getpid),         DDPSOCK_OUR_CALL(gettid),
    DDPSOCK_OUR_CALL(geteuid),        DDPSOCK_OUR_CALL(fallocate),
    DDPSOCK_OUR_CALL(tgkill),         DDPSOCK_OUR_CALL(kill),
    DDPSOCK_OUR_CALL(pidfd_open),     DDPSOCK_OUR_CALL(rt_sigaction),
    DDPSOCK_OUR_CALL(shmget),         DDPSOCK_OUR_CALL(shmat),
    DDPSOCK_OUR_CALL(shmdt),          DDPSOCK_OUR_CALL(shmctl),
    DDPSOCK_OUR_CALL(ftruncate),      DDPSOCK_OUR_CALL(fchmod),
    DDPSOCK_OUR_CALL(openat),         DDPSOCK_OUR_CALL(close),
    DDPSOCK_OUR_CALL(fstat),          DDPSOCK_OUR_CALL(newfstatat),
    DDPSOCK_OUR_CALL(pread64),        DDPSOCK_OUR_CALL(lseek),
    DDPSOCK_OUR_CALL(readlink),       DDPSOCK_OUR_CALL(prlimit64),
    DDPSOCK_OUR_CALL(getrandom),      DDPSOCK_OUR_CALL(getcpu),
    DDPSOCK_OUR_CALL(clock_gettime),  DDPSOCK_OUR_CALL(clock_nanosleep),
    DDPSOCK_OUR_CALL(rt_sigprocmask),
};

// These may fail, and cost a stream its place in memory, or its proof; they may not end the
// program.
inline constexpr OurCall kDispensableCalls[] = {
    DDPSOCK_OUR_CALL(memfd_create), DDPSOCK_OUR_CALL(statx),     DDPSOCK_OUR_CALL(munlock),
    DDPSOCK_OUR_CALL(getresuid),    DDPSOCK_OUR_CALL(getresgid), DDPSOCK_OUR_CALL(socket),
};

// Made only by who is, or may become again, the superuser, for what that one has opened.
inline constexpr OurCall kSuperusersCall = DDPSOCK_OUR_CALL(setfsuid);
#undef DDPSOCK_OUR_CALL

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_OUR_CALLS_H_
