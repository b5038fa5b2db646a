// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// libc's functions that put another thing in the place of descriptors 0, 1 and 2, by calls of their
// own, past any preload.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/keep_errno.h"
#include "base/kernel_view.h"
#include "shim/calls.h"
#include "shim/fd_table.h"
#include "shim/libc_edge.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

bool is_any_standard_ours() {
  return is_ours(STDIN_FILENO) || is_ours(STDOUT_FILENO) || is_ours(STDERR_FILENO);
}

// Of `fd` the copies are all that is left.
void put_in_their_place(int fd) {
  for (int target = STDIN_FILENO; target <= STDERR_FILENO; ++target) own_dup2(fd, target);
  if (fd > STDERR_FILENO) is_ours(fd) ? chosen_close(fd) : real.close(fd);
}

bool is_null_device(int fd) {
  struct stat status;
  return base::kernel::fstat(fd, status) == 0 && S_ISCHR(status.st_mode) &&
         status.st_rdev == makedev(1, 3);
}

int forget_input_and_output() {
  const int fd = open("/dev/null", O_RDWR);
  if (fd < 0) return -1;
  if (!is_null_device(fd)) {
    real.close(fd);
    return fail(ENODEV);
  }
  put_in_their_place(fd);
  return 0;
}

}  // namespace

int own_daemon(int stays, int keeps_standard_files) {
  if (keeps_standard_files != 0 || !is_any_standard_ours())
    return real.daemon(stays, keeps_standard_files);
  const pid_t child = fork();
  if (child < 0) return -1;
  if (child > 0) own_exit(0);
  if (setsid() < 0) return -1;
  if (stays == 0 && chdir("/") != 0) {
    // As libc: a daemon without that folder is one all the same.
  }
  return forget_input_and_output();
}

int own_login_tty(int fd) {
  if (!is_any_standard_ours()) return real.login_tty(fd);
  setsid();
  if (real.ioctl(fd, TIOCSCTTY, nullptr) < 0) return -1;
  put_in_their_place(fd);
  return 0;
}

pid_t own_forkpty(int* terminal, char* name, const termios* mode, const winsize* size) {
  const pid_t child = real.forkpty(terminal, name, mode, size);
  if (child == 0) {
    // The parent holds what was there.
    const base::KeepErrno keep;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) drop_stale_fd(fd);
  }
  return child;
}

}  // namespace ddpsock::shim
