// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a program does to itself late, with connections: limits, another root, another user,
// filters. Only processes that end with the sequence do, for nothing takes it back.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <initializer_list>

#include "act.h"
#include "base/kernel_call.h"

namespace ddpsock::sequences {
namespace {

int limit(__rlimit_resource which, rlim_t most) {
  rlimit value{};
  getrlimit(which, &value);
  value.rlim_cur = most;
  return setrlimit(which, &value);
}

// Of what it has now, and a little.
int limit_address_space() {
  constexpr rlim_t kMore = rlim_t{48} << 20;
  char text[64] = {};
  const long fd = base::kernel_call(SYS_open, "/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const long size = base::kernel_call(SYS_read, fd, text, sizeof text - 1);
  base::kernel_call(SYS_close, fd);
  unsigned long pages = 0;
  if (size <= 0 || sscanf(text, "%lu", &pages) != 1) return -1;
  return limit(RLIMIT_AS, pages * 4096 + kMore);
}

// All are allowed, but for these, which say EPERM.
int filter(std::initializer_list<unsigned> denied) {
  sock_filter code[16];
  unsigned short size = 0;
  code[size++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  for (const unsigned number : denied) {
    code[size++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    code[size++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  }
  code[size++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  sock_fprog program{size, code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

int become_nobody() {
  constexpr unsigned kNobody = 65534;
  return setresgid(kNobody, kNobody, kNobody) == 0 ? setresuid(kNobody, kNobody, kNobody) : -1;
}

int set(Limit what) {
  switch (what) {
    case Limit::kRoot:
      return chroot("/usr/share");
    case Limit::kFiles:
      return limit(RLIMIT_NOFILE, 64);
    case Limit::kAddressSpace:
      return limit_address_space();
    case Limit::kFileSize:
      return limit(RLIMIT_FSIZE, 0);
    case Limit::kUser:
      return become_nobody();
    case Limit::kFilterOfMemory:
      return filter({SYS_memfd_create, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_mlockall});
    default:
      return filter({SYS_getsockopt, SYS_setsockopt, SYS_recvfrom, SYS_sendto, SYS_futex_waitv});
  }
}

}  // namespace

void act_on_limits(const Op& op, Answer& answer) {
  if (!is_process(current_actor)) return answer.add("not a process");
  answer.add_result(set(static_cast<Limit>(op.argument[0])));
}

}  // namespace ddpsock::sequences
