// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_IWARP_WAIT_H_
#define DDPSOCK_TOOLS_IWARP_WAIT_H_

#include <span>

#include "base/clock.h"
#include "connect/handshake.h"
#include "tools/iwarp/error.h"

namespace ddpsock::iwarp {

// Until one of poll(2)'s `events` is there (or an error, or a signal): true. False: `deadline`
// came.
bool wait_for(int fd, short events, Time deadline);

// As wait_for(), for what `need` asks for, and at most to its own deadline.
bool wait_for(int fd, const engine::Need& need, Time deadline);

// What one connection waits for.
struct Wish {
  int fd;
  engine::Need need;
};
// As wait_for(), until any of them has it; at most four.
bool wait_for_any(std::span<const Wish> wishes, Time deadline);

// Moves start-up frames until the handshake is agreed, has failed, or (a responder's) is to be
// decided. The handshake's own timers bound it.
mpa::StartupState run(connecting::Handshake& handshake, int fd);

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_WAIT_H_
