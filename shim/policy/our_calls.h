// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The system calls that the library may make in a call of the program's on a stream: in its start,
// in moving bytes, in the looks after its peer's and its relatives' lives, and in its end. A filter
// of the program's, which does not know of them, is judged by them.
#ifndef DDPSOCK_SHIM_POLICY_OUR_CALLS_H_
#define DDPSOCK_SHIM_POLICY_OUR_CALLS_H_

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <limits>

namespace ddpsock::shim {

// Where the headers of older systems have no name, or are not to be had with libc's.
inline constexpr int kPopulateWrite = 23;                 // MADV_POPULATE_WRITE, Linux 5.14
inline constexpr int kBindToIfindex = 62;                 // SO_BINDTOIFINDEX, Linux 5.0
inline constexpr int kNetnsCookie = 71;                   // SO_NETNS_COOKIE, Linux 5.14
inline constexpr int kTxDelay = 37;                       // TCP_TX_DELAY, Linux 5.0
inline constexpr int kStatAny = 15;                       // SHM_STAT_ANY, Linux 4.17
inline constexpr int kStatxType = 1, kDontSync = 0x4000;  // STATX_TYPE, AT_STATX_DONT_SYNC
inline constexpr int kOfRegistry = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

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
    DDPSOCK_OUR_CALL(getdents64),   DDPSOCK_OUR_CALL(read),      DDPSOCK_OUR_CALL(faccessat),
    DDPSOCK_OUR_CALL(faccessat2),   DDPSOCK_OUR_CALL(fgetxattr), DDPSOCK_OUR_CALL(membarrier),
};

// Made only by who is, or may become again, the superuser, for what that one has opened.
inline constexpr OurCall kSuperusersCall = DDPSOCK_OUR_CALL(setfsuid);
#undef DDPSOCK_OUR_CALL

// With which arguments, where filters may tell them apart: kAny is a descriptor, an address, a
// size, or whatever else differs from time to time. Calls that are not named here are made with
// kAny.
inline constexpr long kAny = std::numeric_limits<long>::min();
struct OurArguments {
  int number;
  std::array<long, 6> values;
  bool may_fail = false;  // although the call is needed
};

constexpr OurArguments in_form(int number, long a = kAny, long b = kAny, long c = kAny,
                               long d = kAny, long e = kAny, long f = kAny) {
  return {number, {a, b, c, d, e, f}};
}
// Of files that are written, which costs no more than a proof, or a place in memory.
constexpr OurArguments in_form_of_writing(long flags, long mode = kAny) {
  return {SYS_openat, {AT_FDCWD, kAny, flags, mode, kAny, kAny}, true};
}
inline constexpr OurArguments kOurArguments[] = {
    in_form(SYS_sendto, kAny, kAny, kAny, 0, 0, 0),
    in_form(SYS_sendto, kAny, kAny, kAny, MSG_MORE, 0, 0),
    in_form(SYS_sendto, kAny, kAny, kAny, MSG_MORE | MSG_NOSIGNAL, 0, 0),
    in_form(SYS_sendto, kAny, kAny, kAny, MSG_DONTWAIT, 0, 0),
    in_form(SYS_sendto, kAny, kAny, kAny, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0),
    in_form(SYS_sendto, kAny, kAny, kAny, MSG_DONTWAIT | MSG_MORE, 0, 0),
    in_form(SYS_sendto, kAny, kAny, kAny, MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL, 0, 0),
    in_form(SYS_sendmsg, kAny, kAny, MSG_DONTWAIT),
    in_form(SYS_sendmsg, kAny, kAny, MSG_DONTWAIT | MSG_NOSIGNAL),
    in_form(SYS_sendmsg, kAny, kAny, MSG_DONTWAIT | MSG_MORE),
    in_form(SYS_sendmsg, kAny, kAny, MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL),
    in_form(SYS_recvfrom, kAny, kAny, kAny, 0, 0, 0),
    in_form(SYS_recvfrom, kAny, kAny, kAny, MSG_DONTWAIT, 0, 0),
    in_form(SYS_recvfrom, kAny, kAny, kAny, MSG_PEEK, 0, 0),
    in_form(SYS_recvfrom, kAny, kAny, kAny, MSG_PEEK | MSG_DONTWAIT, 0, 0),
    in_form(SYS_recvfrom, kAny, kAny, kAny, MSG_PEEK | MSG_WAITALL, 0, 0),
    in_form(SYS_recvfrom, kAny, kAny, kAny, MSG_TRUNC | MSG_DONTWAIT, 0, 0),
    in_form(SYS_recvmsg, kAny, kAny, 0),
    in_form(SYS_recvmsg, kAny, kAny, MSG_DONTWAIT),
    in_form(SYS_recvmsg, kAny, kAny, MSG_PEEK | MSG_DONTWAIT),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_ACCEPTCONN),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, kBindToIfindex),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_COOKIE),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_DOMAIN),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_ERROR),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_GET_FILTER),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_LINGER),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_MAX_PACING_RATE),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_MEMINFO),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, kNetnsCookie),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_PEEK_OFF),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_PROTOCOL),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_RCVBUF),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_RCVLOWAT),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_RCVTIMEO),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_REUSEPORT),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_SNDBUF),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_SNDTIMEO),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_TIMESTAMP_OLD),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_TIMESTAMP_NEW),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_TIMESTAMPNS_OLD),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_TIMESTAMPNS_NEW),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_TIMESTAMPING_OLD),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_TIMESTAMPING_NEW),
    in_form(SYS_getsockopt, kAny, SOL_SOCKET, SO_ZEROCOPY),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_CORK),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_FASTOPEN_CONNECT),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_INFO),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_INQ),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_MAXSEG),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_NODELAY),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_NOTSENT_LOWAT),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_REPAIR),
    in_form(SYS_getsockopt, kAny, SOL_TCP, kTxDelay),
    in_form(SYS_getsockopt, kAny, SOL_TCP, TCP_USER_TIMEOUT),
    in_form(SYS_setsockopt, kAny, SOL_SOCKET, SO_LINGER),
    in_form(SYS_setsockopt, kAny, SOL_SOCKET, SO_RCVBUF),
    in_form(SYS_setsockopt, kAny, SOL_SOCKET, SO_RCVLOWAT),
    in_form(SYS_setsockopt, kAny, SOL_TCP, TCP_CORK),
    in_form(SYS_setsockopt, kAny, SOL_TCP, TCP_INQ),
    in_form(SYS_setsockopt, kAny, SOL_TCP, TCP_NODELAY),
    in_form(SYS_setsockopt, kAny, SOL_TCP, TCP_NOTSENT_LOWAT),
    in_form(SYS_shutdown, kAny, SHUT_RD),
    in_form(SYS_shutdown, kAny, SHUT_WR),
    in_form(SYS_shutdown, kAny, SHUT_RDWR),
    in_form(SYS_fcntl, kAny, F_DUPFD_CLOEXEC),
    in_form(SYS_fcntl, kAny, F_GETFD),
    in_form(SYS_fcntl, kAny, F_GETFL),
    in_form(SYS_fcntl, kAny, F_SETFD, 0),
    in_form(SYS_fcntl, kAny, F_SETFD, FD_CLOEXEC),
    in_form(SYS_fcntl, kAny, F_SETLK),
    in_form(SYS_fcntl, kAny, F_OFD_GETLK),
    in_form(SYS_fcntl, kAny, F_OFD_SETLK),
    in_form(SYS_fcntl, kAny, F_ADD_SEALS),
    in_form(SYS_fcntl, kAny, F_GET_SEALS),
    in_form(SYS_ioctl, kAny, FIONREAD),
    in_form(SYS_ioctl, kAny, SIOCATMARK),
    in_form(SYS_ioctl, kAny, SIOCOUTQ),
    in_form(SYS_futex, kAny, FUTEX_WAIT),
    in_form(SYS_futex, kAny, FUTEX_WAKE),
    in_form(SYS_mmap, 0, kAny, PROT_NONE, MAP_SHARED | MAP_NORESERVE, kAny, kAny),
    in_form(SYS_mmap, 0, kAny, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_ANONYMOUS, -1, kAny),
    in_form(SYS_mmap, 0, kAny, PROT_READ | PROT_WRITE, MAP_SHARED, kAny, 0),
    in_form(SYS_mmap, 0, kAny, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
    in_form(SYS_mmap, 0, kAny, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            -1, 0),
    in_form(SYS_mprotect, kAny, kAny, PROT_READ | PROT_WRITE),
    in_form(SYS_madvise, kAny, kAny, MADV_REMOVE),
    in_form(SYS_madvise, kAny, kAny, MADV_DONTFORK),
    in_form(SYS_madvise, kAny, kAny, MADV_DOFORK),
    in_form(SYS_madvise, kAny, kAny, MADV_WIPEONFORK),
    in_form(SYS_madvise, kAny, kAny, kPopulateWrite),
    in_form(SYS_tgkill, kAny, kAny, 0),
    in_form(SYS_kill, kAny, 0),
    in_form(SYS_pidfd_open, kAny, 0),
    in_form(SYS_rt_sigaction, kAny, 0, kAny, 8),
    in_form(SYS_shmget, IPC_PRIVATE, kAny, S_IRUSR | S_IWUSR),
    in_form(SYS_shmat, kAny, 0, 0),
    in_form(SYS_shmctl, kAny, IPC_RMID),
    in_form(SYS_shmctl, kAny, IPC_STAT),
    in_form(SYS_shmctl, 0, IPC_INFO),
    in_form(SYS_shmctl, kAny, kStatAny),
    in_form(SYS_fallocate, kAny, 0, 0),
    in_form(SYS_fchmod, kAny, 0600),
    in_form(SYS_fchmod, kAny, 0644),
    in_form(SYS_newfstatat, AT_FDCWD, kAny, kAny, 0),
    in_form(SYS_newfstatat, AT_FDCWD, kAny, kAny, AT_SYMLINK_NOFOLLOW),
    in_form(SYS_newfstatat, kAny, kAny, kAny, AT_EMPTY_PATH),
    in_form(SYS_statx, kAny, kAny, AT_EMPTY_PATH, kStatxType),
    in_form(SYS_statx, kAny, kAny, AT_EMPTY_PATH | kDontSync, kStatxType),
    in_form(SYS_openat, AT_FDCWD, kAny, O_RDONLY | O_CLOEXEC),
    in_form(SYS_openat, AT_FDCWD, kAny, O_RDONLY | O_CLOEXEC | O_DIRECTORY),
    in_form(SYS_openat, AT_FDCWD, kAny, O_RDONLY | O_CLOEXEC | O_NONBLOCK),
    in_form(SYS_openat, AT_FDCWD, kAny, O_RDONLY | kOfRegistry),
    in_form_of_writing(O_RDWR | O_CLOEXEC),
    in_form_of_writing(O_RDWR | O_CLOEXEC | O_NONBLOCK),
    in_form_of_writing(O_RDWR | kOfRegistry),
    in_form_of_writing(O_RDWR | kOfRegistry | O_CREAT | O_EXCL, 0644),
    in_form_of_writing(O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600),
    in_form(SYS_openat, AT_FDCWD, kAny, O_PATH | O_CLOEXEC | O_NONBLOCK),
    in_form(SYS_faccessat, AT_FDCWD, kAny, X_OK),
    in_form(SYS_faccessat2, AT_FDCWD, kAny, X_OK, AT_EACCESS),
    in_form(SYS_lseek, kAny, 0, SEEK_CUR),
    in_form(SYS_lseek, kAny, kAny, SEEK_SET),
    in_form(SYS_prlimit64, 0, RLIMIT_AS, 0),
    in_form(SYS_prlimit64, 0, RLIMIT_DATA, 0),
    in_form(SYS_prlimit64, 0, RLIMIT_FSIZE, 0),
    in_form(SYS_prlimit64, 0, RLIMIT_NOFILE, 0),
    in_form(SYS_getrandom, kAny, kAny, 0),
    in_form(SYS_rt_sigprocmask, -1, kAny, 0, 8),
    in_form(SYS_rt_sigprocmask, SIG_BLOCK, kAny, kAny, 8),
    in_form(SYS_rt_sigprocmask, SIG_SETMASK, kAny, 0, 8),
    in_form(SYS_clock_nanosleep, CLOCK_REALTIME, 0),
    in_form(SYS_clock_gettime, CLOCK_BOOTTIME),
    in_form(SYS_clock_gettime, CLOCK_MONOTONIC),
    in_form(SYS_clock_gettime, CLOCK_MONOTONIC_COARSE),
    in_form(SYS_memfd_create, kAny, MFD_CLOEXEC),
    in_form(SYS_memfd_create, kAny, MFD_CLOEXEC | MFD_ALLOW_SEALING),
    in_form(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG),
};

// Calls make(form) for each form that `call` has.
template <typename Make>
constexpr void each_form(const OurCall& call, Make make) {
  bool is_named = false;
  for (const OurArguments& form : kOurArguments)
    if (form.number == call.number) {
      is_named = true;
      make(form);
    }
  if (!is_named) make(in_form(call.number));
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_OUR_CALLS_H_
