// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A wait in the kernel by who holds a direction: the mark is set for as long as it lasts.
#ifndef DDPSOCK_STREAM_SLEEP_H_
#define DDPSOCK_STREAM_SLEEP_H_

#include <errno.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>

#include "base/process.h"
#include "relatives/record.h"
#include "stream/kernel_socket.h"
#include "stream/standstill.h"

namespace ddpsock::engine {

// As the system call that `look` makes, which does not wait. In a child that a signal handler
// forked inside it the call is a copy, and the mark its parent's, who sleeps on: there it is as if
// that had failed, EINTR.
template <typename Look>
ssize_t look_in(SleepMark& mark, Look look) {
  const uint32_t copies = base::thread_copies();
  mark = true;
  const ssize_t n = look();
  if (copies != base::thread_copies()) [[unlikely]] {
    errno = EINTR;
    return -1;
  }
  mark = false;
  return n;
}

// False as Standstill::wait_asleep(). Who closes a number, or executes a program, sees that we are
// awake and waits, or we see what it has done.
inline bool wake_fully(SleepMark& mark) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return !Standstill::is_wanted() || Standstill::wait_asleep(mark);
}

// As look_in(), for a call that may wait. The caller asks what its number means now.
template <typename Wait>
ssize_t sleep_in(SleepMark& mark, Wait wait) {
  const uint32_t copies = base::thread_copies();
  const ssize_t n = look_in(mark, wait);
  if (copies == base::thread_copies() && !wake_fully(mark)) [[unlikely]] {
    errno = EINTR;
    return -1;
  }
  return n;
}

// One or the other, as `flags` have MSG_DONTWAIT.
template <typename Call>
ssize_t ask_in(SleepMark& mark, int flags, Call call) {
  return (flags & MSG_DONTWAIT) != 0 ? look_in(mark, call) : sleep_in(mark, call);
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

#endif  // DDPSOCK_STREAM_SLEEP_H_
