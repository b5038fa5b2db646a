// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the engine asks the kernel about a socket, off the hot path. None of these touches errno.
#ifndef DDPSOCK_STREAM_KERNEL_SOCKET_H_
#define DDPSOCK_STREAM_KERNEL_SOCKET_H_

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace ddpsock::engine {

bool is_nonblocking(int fd);
// Does a short segment wait for the acknowledgement of another, and for nothing else (neither
// TCP_NODELAY nor TCP_CORK)?
bool is_nagling(int fd);

// poll() with no waiting; true for -1. For POLLOUT a `false` makes the kernel promise an edge to
// other pollers.
bool is_ready_now(int fd, short events);

// Has the kernel an error to tell, which whoever receives or sends is told once?
bool has_error(int fd);
// Is that how a connection ends? Of a host that has vanished it is what the network said of it
// last. Whoever met it behind bytes that count keeps it for the next call.
bool is_told_once(int error);
// Has the peer's FIN or a reset come? POLLRDHUP does not tell: who shuts its own reading side down
// has it, too, and reads an end wherever nothing lies there, though more may come.
bool has_peer_ended(int fd);
// Or both ends have ended, and the peer knows.
bool has_been_reset(int fd);

// Notes the sleep. 0 when ready or in error, else EAGAIN (deadline), EINTR, EBADF (-1: poll()
// itself would wait).
int wait_ready(int fd, short events, Time deadline);

// From SO_RCVTIMEO or SO_SNDTIMEO, counted from now; kNever if unset.
Time deadline_of(int fd, int option);

// SO_RCVLOWAT as the kernel counts it, best effort. If so much is unread the kernel tells all its
// pollers again, by an edge too.
void set_kernel_low_water(int fd, int bytes);

// Unread bytes in the kernel (FIONREAD), frames and all; 0 if it does not say.
size_t bytes_queued(int fd);

// After EINTR: does every signal handler of this process ask for its calls to be restarted
// (SA_RESTART), those of faults aside? Which signal it was cannot be known; with handlers of both
// kinds the answer is no.
bool do_handlers_restart();
// Would the kernel restart a call that slept on `fd`? Not if that has a timeout, of that direction.
bool does_restart(int fd, int timeout_option);

// Stream::await_established().
int await_established(int fd, int timeout_option);

// Send memory by the kernel's own account (SO_MEMINFO): bytes with overhead.
struct SendMemory {
  uint32_t limit;
  uint32_t queued;
  uint32_t free() const { return limit > queued ? limit - queued : 0; }
};
SendMemory send_memory(int fd);

// Does what lies unread take half the memory that it may, or more? Then the peer may get no window.
// The kernel counts buffers, which one byte keeps whole.
bool is_receive_memory_full(int fd);

// Does TCP call the socket readable though less than SO_RCVLOWAT is there, because no more fits?
bool is_receiving_at_limit(int fd);

// The window that the peer offers now, bytes; 0 if the kernel does not say (before Linux 6.2).
uint32_t send_window(int fd);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_KERNEL_SOCKET_H_
