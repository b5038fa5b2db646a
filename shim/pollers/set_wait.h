// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A thread waits in an epoll set that is looked at here, from its first look to its return. Lies on
// its stack, and is given back if it is cancelled or a handler jumps out (base/unfinished.h). The
// set is in static memory.
#ifndef DDPSOCK_SHIM_POLLERS_SET_WAIT_H_
#define DDPSOCK_SHIM_POLLERS_SET_WAIT_H_

#include <cstdint>

#include "base/unfinished.h"
#include "shim/pollers/memory_watch.h"

namespace ddpsock::shim {

class SetWait : private base::Unfinished {
 public:
  // `watched` was found to be `set`'s. Settles what this thread let lie elsewhere, and where
  // another one waited here last the kernel is told all first.
  SetWait(WatchedSet& watched, int set);
  ~SetWait() { end(); }
  SetWait(const SetWait&) = delete;
  SetWait& operator=(const SetWait&) = delete;
  // False: it has become the kernel's meanwhile, and this place perhaps another set's.
  bool is_of_set() const { return is_of_set_; }

 private:
  void end();

  WatchedSet& set_;
  const uint32_t generation_;
  bool is_of_set_ = false;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLLERS_SET_WAIT_H_
