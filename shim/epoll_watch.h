// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which epoll sets watch a descriptor of ours, as far as epoll_wait needs to know: epoll reports
// the program's own 64 bits and not the descriptor. Bounded; what does not fit is not filtered,
// which costs a blocking program at most a recv() that waits for the rest of an FPDU, and a
// connecting one that MPA start-up begins with the program's first call on the socket.
#ifndef DDPSOCK_SHIM_EPOLL_WATCH_H_
#define DDPSOCK_SHIM_EPOLL_WATCH_H_

#include <sys/epoll.h>

#include <atomic>

namespace ddpsock::shim {

inline constexpr unsigned kMaxWatches = 256;

extern constinit std::atomic<unsigned> watches_end;  // none beyond
inline bool is_any_watched() {
  return watches_end.load(std::memory_order_acquire) != 0;
}

// EPOLL_CTL_ADD or MOD succeeded with `event`. One-shot and edge-triggered watches are not kept: an
// event of theirs that was swallowed would not come again.
void set_watch(int set, int fd, const epoll_event& event);
void forget_watch(int set, int fd);  // EPOLL_CTL_DEL
void forget_watches_of(int fd);      // closed
void forget_watches_in(int set);     // a new set has this number

// The descriptor that `set` watches with `data`, -1 if none is known.
int watched_fd(int set, epoll_data_t data);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_EPOLL_WATCH_H_
