// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A small send or receive in memory where nothing is unusual: nobody else is in the direction,
// there is room or there are bytes in one piece, no bell and no error is owed, and nothing is to be
// told. That is what most calls of a busy connection are. memory_tx and memory_receiver serve all
// calls, these too, with the same result and three times the instructions.
//
// No call here sleeps. Nothing: it has done nothing, and the call is theirs.
#ifndef DDPSOCK_STREAM_MEMORY_BRIEF_H_
#define DDPSOCK_STREAM_MEMORY_BRIEF_H_

#include <optional>

#include "stream/connection.h"

namespace ddpsock::engine {

std::optional<Io> send_briefly(Connection& c, int fd, const iovec& from, int flags);
std::optional<Io> receive_briefly(Connection& c, int fd, const iovec& to, int flags);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_MEMORY_BRIEF_H_
