// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Pollers are the kernel's; the corrections that its answer may need before a program sees it:
//   - a connection under way is completed when it is first reported, so that MPA start-up begins;
//   - a *blocking* stream socket is not called readable while all it has is part of an FPDU,
//   because
//     the recv() that follows would block. A non-blocking program just gets EAGAIN;
//   - nor is it called writable while the memory shared with the peer is as good as full, because
//     the send() that follows would block;
//   - the reset that follows a peer which was killed, with nothing unread but octets, is an end.
//   (In
//     sets of epoll that are watched (watched_sets.h).)
//   - no stream is called readable for a bell that came after the bytes it was rung for were taken.
//     (epoll: memory_bells.h. In sets that are not watched a program just gets EAGAIN.)
#ifndef DDPSOCK_SHIM_POLLERS_READINESS_H_
#define DDPSOCK_SHIM_POLLERS_READINESS_H_

#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "shim/program_memory.h"

namespace ddpsock::shim {

// Could the kernel's answer about `fd` need a correction? `is_for_reading`: readability was asked
// for.
bool needs_correction(int fd, bool is_for_reading);

// The same about a watch of an epoll set, for as long as that lasts. `may_withdraw`: what is
// withdrawn would be reported again.
bool needs_watch(int fd, bool may_withdraw);

// Could bells make the kernel call `fd` readable?
bool may_hear_bells(int fd);

// The kernel has reported `fd`. Completes a connection under way; false if the report that it is
// readable, and only that, must be withdrawn.
bool is_report_true(int fd, bool is_readable);

// A blocking stream in memory: could the kernel call it writable too early?
bool may_be_full(int fd);
// The kernel has reported `fd` writable, and nothing worse; false if that must be withdrawn.
bool is_room_report_true(int fd);

// The kernel has reported an error, or the end of both directions, of `fd`: which of POLLERR and
// POLLHUP are not so, because that is a reset which has destroyed nothing.
short untrue_at_end(int fd);
// As Stream::has_kept_error().
bool has_kept_error(int fd);

// Would the kernel take it for a timeout? What it refuses is left to it to refuse.
inline bool is_timeout(const timespec* timeout) {
  return timeout == nullptr || (is_sound(timeout, sizeof *timeout) && timeout->tv_sec >= 0 &&
                                timeout->tv_nsec >= 0 && timeout->tv_nsec < 1'000'000'000);
}

// Until when a poller waits, through as many kernel calls as it takes, and with which signals
// blocked (nullptr: the thread's).
class PollDeadline {
 public:
  // Negative, nullptr: never.
  static PollDeadline after_ms(int timeout_ms, const sigset_t* mask = nullptr);
  static PollDeadline after(const timespec* timeout, const sigset_t* mask = nullptr);
  const sigset_t* mask() const { return mask_; }
  bool is_over() const { return at_ != kNever && base::now() >= at_; }
  int left_ms() const;                   // for poll: -1 never; rounded up
  timespec* left(timespec& room) const;  // for ppoll: nullptr never
  // Before the kernel is asked again, after a round in which nothing that it reported was true. It
  // may go on reporting that (bytes below SO_RCVLOWAT) for as long as the poller waits: after some
  // that follow one another this sleeps for a moment. False: a signal came (EINTR).
  bool rest_after_vain_round() const;

 private:
  Time at_ = kNever;
  const sigset_t* mask_ = nullptr;
  mutable int vain_rounds_ = 0;
  mutable Time last_vain_round_{};
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_READINESS_H_
