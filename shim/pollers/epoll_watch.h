// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which epoll sets watch a descriptor whose reports may need a correction (readiness.h): epoll
// reports the program's own 64 bits and not the descriptor. Bounded; what does not fit is not
// corrected, which costs a blocking program at most a recv() that waits for the rest of an FPDU,
// and a connecting one that MPA start-up begins with the program's first call on the socket.
#ifndef DDPSOCK_SHIM_POLLERS_EPOLL_WATCH_H_
#define DDPSOCK_SHIM_POLLERS_EPOLL_WATCH_H_

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/unfinished.h"

namespace ddpsock::shim {

inline constexpr unsigned kMaxWatches = 256;

extern constinit std::atomic<unsigned> watch_count;
inline bool is_any_watched() {
  return watch_count.load(std::memory_order_acquire) != 0;
}

// `set` watches `fd` with `event`, in place of what it watched it with before.
void set_watch(int set, int fd, const epoll_event& event);
void forget_watch(int set, int fd);
void forget_watches_of(int fd);   // closed
void forget_watches_in(int set);  // a new set has this number

struct Watched {
  int fd = -1;  // -1: none is known
  // An event of an edge-triggered or one-shot watch that is swallowed would not come again.
  bool may_withdraw = false;
};

// An epoll_ctl is at work on `set`: what becomes a member may have any data, and be reported to
// another thread before that is known.
class MemberChange : private base::Unfinished {
 public:
  explicit MemberChange(int set)
      : Unfinished([](base::Unfinished& change) { static_cast<MemberChange&>(change).end(); }),
        changes_(of(set)),
        before_(changes_.fetch_add(1)) {
    begin();
  }
  ~MemberChange() { end(); }
  MemberChange(const MemberChange&) = delete;
  MemberChange& operator=(const MemberChange&) = delete;
  // Of this set, or of one with a number that shares its place.
  static bool is_any_of(int set) { return static_cast<uint32_t>(of(set).load()) != 0; }
  // Those that are under way are the parent's.
  static void in_child();

 private:
  // How many; in the upper half how often that began anew, in a child.
  using Changes = std::atomic<uint64_t>;
  static constexpr unsigned kPlaces = 64;
  static Changes& of(int set) { return places[static_cast<unsigned>(set) % kPlaces]; }
  static std::array<Changes, kPlaces> places;
  void end();

  Changes& changes_;
  const uint64_t before_;
  bool is_counted_ = true;
};
// `fd` has become, or stays, a member of `set` with this data: an event with it may be this one's
// from now on, and is not withdrawn on the word of another.
void note_member(int set, int fd, epoll_data_t data);
// May an event with this data be withdrawn, which is a watch's? Asks the kernel once
// after a set_watch() that changes anything whether it can be another member's; where that cannot
// be asked it goes by note_member().
bool may_withdraw_from(int set, epoll_data_t data);

// A descriptor that `set` watches with `data`.
Watched find_watch(int set, epoll_data_t data);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_EPOLL_WATCH_H_
