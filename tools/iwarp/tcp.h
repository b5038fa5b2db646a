// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_IWARP_TCP_H_
#define DDPSOCK_TOOLS_IWARP_TCP_H_

#include <optional>

#include "base/clock.h"
#include "base/fd.h"
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

}  // namespace ddpsock::iwarp

#endif  // DDPSOCK_TOOLS_IWARP_TCP_H_
