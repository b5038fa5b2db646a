// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The system calls that the library may make in a call of the program's on a stream: in its start,
// in moving bytes, in the looks after its peer's and its relatives' lives, and in its end. A filter
// of the program's, which does not know of them, is judged by them.
#ifndef DDPSOCK_SHIM_OUR_CALLS_H_
#define DDPSOCK_SHIM_OUR_CALLS_H_

#include <sys/syscall.h>

namespace ddpsock::shim {

// The vDSO's among them, which is not always there.
inline constexpr int kNeededCalls[] = {
    SYS_sendto,        SYS_sendmsg,
    SYS_recvfrom,      SYS_recvmsg,
    SYS_getsockopt,    SYS_setsockopt,
    SYS_getsockname,   SYS_getpeername,
    SYS_shutdown,      SYS_poll,
    SYS_ppoll,         SYS_fcntl,
    SYS_ioctl,         SYS_futex,
    SYS_mmap,          SYS_munmap,
    SYS_mremap,        SYS_madvise,
    SYS_mprotect,      SYS_sched_yield,
    SYS_getpid,        SYS_gettid,
    SYS_geteuid,       SYS_fallocate,
    SYS_tgkill,        SYS_kill,
    SYS_pidfd_open,    SYS_rt_sigaction,
    SYS_shmget,        SYS_shmat,
    SYS_shmdt,         SYS_shmctl,
    SYS_ftruncate,     SYS_fchmod,
    SYS_openat,        SYS_close,
    SYS_fstat,         SYS_newfstatat,
    SYS_pread64,       SYS_lseek,
    SYS_readlink,      SYS_prlimit64,
    SYS_getrandom,     SYS_getcpu,
    SYS_clock_gettime, SYS_clock_nanosleep,
};

// These may fail, and cost a stream its place in memory, or its proof; they may not end the
// program.
inline constexpr int kDispensableCalls[] = {
    SYS_memfd_create, SYS_statx, SYS_munlock, SYS_getresuid, SYS_setfsuid, SYS_socket,
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_OUR_CALLS_H_
