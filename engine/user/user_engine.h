// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The user engine's message mode: queue pairs over TCP sockets, in the caller's thread. A
// Start::lower is the fd of a connected TCP socket, blocking or not; it stays the caller's, gets
// TCP_NODELAY, and must not be read from or written to until the queue pair has ended. Then the
// connection is shut down in both directions and the caller closes the fd.
#ifndef DDPSOCK_ENGINE_USER_USER_ENGINE_H_
#define DDPSOCK_ENGINE_USER_USER_ENGINE_H_

#include <cstdint>
#include <memory>

#include "engine/queue/medium.h"

namespace ddpsock::engine {

class FpduWay;
namespace shm {
class MessageMemory;
}

struct UserMessageConfig {
  uint32_t max_regions = 1024;
};

// nullptr: no memory. The first use in a process chooses a CRC implementation.
std::unique_ptr<Engine> open_user_message_engine(const UserMessageConfig& config = {});

// A Start::medium: what is to be said goes to memory settled with the peer, which outlives the
// queue pair, and the socket carries bells and the end.
class InMemory final : public Medium {
 public:
  explicit InMemory(shm::MessageMemory& memory) : memory_(memory) {}
  Result<std::unique_ptr<Carrier>, StartError> open(SoftEngine& engine, const Start& start,
                                                    const QpAttr& attr) const override;

 private:
  shm::MessageMemory& memory_;
};

// A Start::medium: the byte stream has this connection, too. FPDUs lie between its chunks
// (engine/fpdu_way.h), and ends of the queue pair but a Terminate leave it alone.
class BetweenChunks final : public Medium {
 public:
  explicit BetweenChunks(FpduWay& stream) : stream_(stream) {}
  Result<std::unique_ptr<Carrier>, StartError> open(SoftEngine& engine, const Start& start,
                                                    const QpAttr& attr) const override;
  bool is_of_stream() const override { return true; }

 private:
  FpduWay& stream_;
};

constexpr LowerLayer lower_layer_of(int fd) {
  return LowerLayer{fd};
}

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_USER_USER_ENGINE_H_
