// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_IWARP_TCP_H_
#define DDPSOCK_TOOLS_IWARP_TCP_H_

#include <optional>
#include <span>

#include "base/clock.h"
#include "base/fd.h"
#include "engine/engine.h"
#include "tools/iwarp/address.h"

namespace ddpsock::iwarp {

// A connected TCP socket, non-blocking, with TCP_NODELAY: some peers want a start-up frame in one
// segment. `source`: the address to connect from; port 0: any.
Result<base::UniqueFd, Error> connect_tcp(const Address& to, Time deadline,
                                          const std::optional<Address>& source = {});

void set_no_delay(int fd);

// FIN, then reads and drops what the peer still sends up to its FIN, then closes: a close with
// unread bytes sends a RST, which can overtake what was sent last.
void close_gently(base::UniqueFd fd, Time deadline);

// Until one of poll(2)'s `events` is there (or an error, or a signal): true. False: `deadline`
// came.
bool wait_for(int fd, short events, Time deadline);

// What one connection waits for.
struct Wish {
  int fd;
  engine::Need need;
};
// As above, until any of at most four has it, and at most to their own deadlines.
bool wait_for(std::span<const Wish> wishes, Time deadline);

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_TCP_H_
