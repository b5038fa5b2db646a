// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The bells of streams in shared memory, which the kernel takes for bytes: while a thread looks at
// a set's streams (memory_look.h) they may lie unread; who sleeps on the kernel settles them
// before, and what it says for the sake of a bell alone is no event. Any thread, signal handlers
// too; no hold is needed. errno is kept.
#ifndef DDPSOCK_SHIM_POLLERS_MEMORY_BELLS_H_
#define DDPSOCK_SHIM_POLLERS_MEMORY_BELLS_H_

#include <sys/epoll.h>

#include "shim/pollers/memory_watch.h"

namespace ddpsock::shim {

namespace detail {
[[gnu::tls_model("initial-exec")]] extern thread_local constinit WatchedSet* lying_in;
void settle_last();
}  // namespace detail

// This thread lets bells of streams of `set` lie, until settle() or, where it waits elsewhere
// first, settle_elsewhere(). By then the place may be another set's.
inline void note_lying_in(WatchedSet& set) {
  detail::lying_in = &set;
}
// About to sleep: the kernel shall tell the truth about all streams of `set`. False: one has bytes.
bool settle(WatchedSet& set);
// This thread is about to wait in another set than `here`, which may have the same streams.
inline void settle_elsewhere(const WatchedSet* here) {
  if (detail::lying_in != nullptr && detail::lying_in != here) detail::settle_last();
}

// Takes from an answer of the kernel's what it reports for a bell that was left there. How many
// events are left.
int without_bells(WatchedSet& set, epoll_event* answer, int count);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_MEMORY_BELLS_H_
