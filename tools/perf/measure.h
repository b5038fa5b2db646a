// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The measured loops: perftest's, request by request. Each runs Plan::iterations messages of one
// size.
#ifndef DDPSOCK_TOOLS_PERF_MEASURE_H_
#define DDPSOCK_TOOLS_PERF_MEASURE_H_

#include <vector>

#include "tools/perf/session.h"

namespace ddpsock::perf {

// When each request was posted.
using Posted = std::vector<Time>;

// Send and Write: both ends, in turns. perftest lets the client send first, but the server write
// first. A Write has arrived when its last byte, the low 8 bits of its number, is seen in memory.
Result<Posted, Error> ping_pong(Session& session, uint32_t size);
// One Read after the other.
Result<Posted, Error> read_latency(Session& session, uint32_t size);

// From the first post (receiver: the first message) to the last completion.
Result<Duration, Error> send_stream(Session& session, uint32_t size);
Result<Duration, Error> receive_stream(Session& session, uint32_t size);

}  // namespace ddpsock::perf

#endif  // DDPSOCK_TOOLS_PERF_MEASURE_H_
