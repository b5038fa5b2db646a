// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Connections whose descriptors go where no library serves them, or that the program wants
// something of which only the kernel can do: they return to plain TCP first, at both ends.
#ifndef DDPSOCK_SHIM_CALLS_LEAVING_H_
#define DDPSOCK_SHIM_CALLS_LEAVING_H_

#include <sys/socket.h>

#include <cstdint>

#include "base/clock.h"

namespace ddpsock::shim {

// For all peers of one call to answer, of time in which this machine was not busy with others; and
// of any time.
inline constexpr Duration kPatience = Duration::from_ms(200),
                          kMostPatience = Duration::from_ms(2000);

// Of what leaves in one call: all at once, and one patience.
class Leaving {
 public:
  // `why` is static text for DDP_STATUS and the log.
  // `answers_itself`: the peers may be this very thread's. Not in a vfork child, which must not
  // judge what its parent's threads hold.
  Leaving(const char* why, bool answers_itself, Duration patience);

  // One round: each descriptor, then next_round(), until that says no. The table's number, and
  // where it is open: the same, but in a vfork child that has closed or replaced it.
  void step(int fd, int at);
  // Waits a little, if a peer has yet to answer and there is time.
  bool next_round();
  // False: one at least could not be made plain. The log says why; it goes on as it was.
  bool is_done() const { return is_done_; }
  // The peers have not answered in time.
  bool has_run_out() const { return is_last_ && !is_done_; }

 private:
  const char* why_;
  Duration patience_;
  Time deadline_;
  int64_t pause_;
  int rounds_;
  bool is_last_ = false, is_done_ = true, is_pending_ = false;
};

struct Step {
  Leaving& leaving;
  void operator()(int fd) const { leaving.step(fd, fd); }
  void operator()(int fd, int at) const { leaving.step(fd, at); }
};

template <typename Each>
void leave_each(Leaving& leaving, Each each) {
  do each(Step{leaving});
  while (leaving.next_round());
}

// Takes connections back to plain TCP; false if one at least is not. `each(visit)` calls visit(fd),
// or visit(fd, at) as Leaving::step(),
// for all of them, and more than once. Keeps errno; async-signal-safe; also in a vfork child.
template <typename Each>
bool leave_ddp_mode_each(Each each, const char* why, bool answers_itself = true) {
  Leaving leaving(why, answers_itself, kPatience);
  leave_each(leaving, each);
  return leaving.is_done();
}

inline bool leave_ddp_mode(int fd, const char* why) {
  return leave_ddp_mode_each([=](auto visit) { visit(fd); }, why);
}

// The urgent byte is the kernel's to carry. Where it cannot be, the flag is refused as before.
inline void leave_for_urgent_data(int fd, int flags) {
  if ((flags & MSG_OOB) != 0) [[unlikely]]
    leave_ddp_mode(fd, "urgent data");
}

// Where no urgent byte is there the answer is at hand, whatever others do with the connection.
void leave_for_urgent_byte(int fd);
inline void leave_to_receive(int fd, int flags) {
  if ((flags & MSG_OOB) != 0) [[unlikely]]
    leave_for_urgent_byte(fd);
}

// All connections of the process.
bool leave_ddp_mode_everywhere(const char* why);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_LEAVING_H_
