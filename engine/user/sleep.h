// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A wait in the kernel by who holds a direction: the mark is set for as long as it lasts.
#ifndef DDPSOCK_ENGINE_USER_SLEEP_H_
#define DDPSOCK_ENGINE_USER_SLEEP_H_

#include <errno.h>
#include <sys/types.h>

#include "base/process.h"
#include "engine/user/kernel_socket.h"
#include "engine/user/relatives/record.h"
#include "engine/user/standstill.h"

namespace ddpsock::engine {

// With what the sleep has brought; as the system call in a child.
inline ssize_t stand_still(SleepMark& mark, ssize_t brought) {
  const int e = Standstill::stand(mark);
  if (e == 0) return brought;
  errno = e;
  return -1;
}

// As the system call that `wait` makes. In a child that a signal handler forked inside it the call
// is a copy, and the mark its parent's, who sleeps on: there it is as if that had failed, EINTR.
template <typename Wait>
ssize_t sleep_in(SleepMark& mark, Wait wait) {
  const uint32_t copies = base::thread_copies();
  mark = true;
  const ssize_t n = wait();
  if (copies != base::thread_copies()) [[unlikely]] {
    errno = EINTR;
    return -1;
  }
  mark = false;
  // Who executes a program sees that we are awake and waits, or we see that it does.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (Standstill::is_wanted()) [[unlikely]]
    return stand_still(mark, n);
  return n;
}

// As wait_ready(), likewise.
inline int sleep_until_ready(SleepMark& mark, int fd, short events, Time deadline) {
  int error = 0;
  const auto wait = [&] {
    error = wait_ready(fd, events, deadline);
    return 0;
  };
  return sleep_in(mark, wait) == 0 ? error : EINTR;
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_SLEEP_H_
