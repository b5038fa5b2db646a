// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_CONNECT_WAIT_H_
#define DDPSOCK_CONNECT_WAIT_H_

#include <initializer_list>

#include "base/clock.h"
#include "engine/engine.h"

namespace ddpsock::connecting {

// Sleeps in the calling thread until one of poll(2)'s `events` is there (or an error, or a signal):
// true. False: `deadline` came.
bool wait_for(int fd, short events, Time deadline);

// What one connection waits for.
struct Wish {
  int fd;
  engine::Need need;
};
// As above, until any of at most four has it, and at most to their own deadlines.
bool wait_for(std::initializer_list<Wish> wishes, Time deadline);

}  // namespace ddpsock::connecting

#endif  // DDPSOCK_CONNECT_WAIT_H_
