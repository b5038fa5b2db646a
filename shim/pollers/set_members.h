// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is known here of an epoll set: its number, which of its members are streams that may lie in
// shared memory, and what others it has. Bounded: a stream that does not fit is one of the others,
// rung for each sleep of its reader, and costs what it costs on TCP.
//
// Any thread may look; the functions that change what is known, and REQUIRE a hold
// (WatchedSet::Hold), are called by one at a time. Nothing here sleeps but in epoll_ctl().
#ifndef DDPSOCK_SHIM_POLLERS_SET_MEMBERS_H_
#define DDPSOCK_SHIM_POLLERS_SET_MEMBERS_H_

#include <sys/epoll.h>

#include <cstdint>

#include "shim/pollers/other_members.h"
#include "shim/pollers/set_place.h"
#include "shim/pollers/stream_table.h"

namespace ddpsock::shim {

class SetMembers {
 public:
  SetPlace& place() { return place_; }
  const SetPlace& place() const { return place_; }
  StreamTable& streams() { return streams_; }
  OtherMembers& others() { return others_; }

  // A program that gives two descriptors the same data cannot be told which of them has bytes.
  bool has_other_with(uint64_t data, int fd);
  // With room for so few events the kernel's own order is the only one that is known: it goes by
  // when each became ready, and here that is known of none that is found beside another.
  bool is_for_kernel(int room);

  // After EPOLL_CTL_ADD or MOD of a stream. REQUIRES: a hold, from before the kernel heard of it.
  void watch(int fd, const epoll_event& event);
  // The same of what only the kernel can serve. REQUIRES: a hold.
  void leave_to_kernel(int fd, const epoll_event& event);
  // After EPOLL_CTL_DEL. REQUIRES: as watch().
  void unwatch(int fd);
  // It may have been added again since: then nobody knows here what the kernel heard last.
  // REQUIRES: a hold.
  void unwatch_late(int fd);
  // `w` becomes one of the others. REQUIRES: a hold.
  void hand_over(WatchedStream& w, int fd);
  // Members that were deleted and stayed for their bells' sake go, where these are settled.
  // REQUIRES: a hold.
  void free_unwatched();

 private:
  SetPlace place_;  // on a line of its own: all look for theirs by it
  alignas(64) StreamTable streams_;
  OtherMembers others_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_SET_MEMBERS_H_
