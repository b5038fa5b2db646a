// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "base/kernel_view.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>

namespace ddpsock::base {
namespace {

// Filters of before Linux 5.8 know no faccessat2, and answer what they do not know in either way.
bool can_tell_behind_a_filter(uint32_t answer) {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_faccessat2, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | answer),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  const pid_t child = fork();
  if (child == 0) {
    const bool is_filtered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                             prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
    const bool can_tell =
        kernel::is_executable("/bin/sh") && !kernel::is_executable("/proc/self/status");
    _exit(is_filtered && can_tell ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

TEST(KernelView, TellsWhatIsExecutable) {
  EXPECT_TRUE(kernel::is_executable("/bin/sh"));
  EXPECT_FALSE(kernel::is_executable("/proc/self/status"));
  EXPECT_FALSE(kernel::is_executable("/nowhere"));
  EXPECT_TRUE(can_tell_behind_a_filter(ENOSYS));
  EXPECT_TRUE(can_tell_behind_a_filter(EPERM));
}

}  // namespace
}  // namespace ddpsock::base
