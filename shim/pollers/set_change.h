// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The program's epoll_ctl(), from before the kernel hears of it until that is known here: calls of
// several threads come one after the other, as they do in the kernel (decision 51). Lies on the
// stack of the call; a jump out of it gives the set up. Any set and descriptor; errno is kept.
#ifndef DDPSOCK_SHIM_POLLERS_SET_CHANGE_H_
#define DDPSOCK_SHIM_POLLERS_SET_CHANGE_H_

#include <sys/epoll.h>

#include <optional>

#include "shim/pollers/memory_watch.h"

namespace ddpsock::shim {

class SetChange {
 public:
  // With a stream that may come to lie in memory the set begins to be watched. `event` is borrowed
  // until the end; nullptr where the program's cannot be read, or is none.
  SetChange(int set, int operation, int fd, const epoll_event* event);
  SetChange(const SetChange&) = delete;
  SetChange& operator=(const SetChange&) = delete;

  // True: it is done, and the kernel need not hear of it yet (WatchedSet::defer()).
  bool defer() { return hold_ && defer_held(); }
  // The kernel has done it. The set is free for others then.
  void note();
  // Of one that began before anybody could watch the set.
  static void note_late(int set, int operation, int fd, const epoll_event* event);

 private:
  struct Late {};
  SetChange(Late, int set, int operation, int fd, const epoll_event* event)
      : number_(set), operation_(operation), fd_(fd), event_(event), set_(nullptr) {}
  bool defer_held();

  const int number_, operation_, fd_;
  const epoll_event* const event_;
  WatchedSet* set_;
  std::optional<WatchedSet::Hold> hold_;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_SET_CHANGE_H_
