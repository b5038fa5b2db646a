// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The user engine's message mode: queue pairs over TCP sockets, in the caller's thread. A
// Start::lower is the fd of a connected TCP socket, blocking or not; it stays the caller's, gets
// TCP_NODELAY, and must not be read from or written to until the queue pair has ended. Then the
// connection is shut down in both directions (but after detach()) and the caller closes the fd.
#ifndef DDPSOCK_ENGINE_USER_QP_H_
#define DDPSOCK_ENGINE_USER_QP_H_

#include <cstdint>
#include <memory>

#include "engine/engine.h"

namespace ddpsock::engine {

struct UserMessageConfig {
  uint32_t max_regions = 1024;
};

// nullptr: no memory. The first use in a process chooses a CRC implementation.
std::unique_ptr<Engine> open_user_message_engine(const UserMessageConfig& config = {});

constexpr LowerLayer lower_layer_of(int fd) {
  return LowerLayer{fd};
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_QP_H_
