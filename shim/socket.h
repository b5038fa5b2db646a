// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What this process knows of one of its sockets that is, will be or may become a DDPMODE
// connection. Every descriptor that shares the kernel socket (dup) shares one Socket. A forked
// child has its own copy; what must be common to both lies behind engine::Stream.
#ifndef DDPSOCK_SHIM_SOCKET_H_
#define DDPSOCK_SHIM_SOCKET_H_

#include <atomic>
#include <cstdint>

#include "shim/policy/policy.h"
#include "shim/references.h"
#include "stream/stream.h"

namespace ddpsock::message {
class Handle;
}

namespace ddpsock::shim {

enum class Phase : uint8_t {
  kIdle,        // unconnected: carries a wish
  kListening,   // registered with the policy; carries the wish for accepted sockets
  kConnecting,  // `stream` is open; TCP was not yet seen to be established
  kCompleting,  // the same, and one thread is asking the policy for its last word
  kStream,      // in DDPMODE: `stream` serves every call
  kPlain,       // decided: plain TCP, passes through; kept to answer DDP_STATUS. `stream` goes with
                // the last running call
  kMessage,     // in message mode, connected or not, or a completion queue: `message` serves
};

// What the program asked for by DDP_ENGINE; kDefault: what ddprun said (DDPSOCK_ENGINE).
enum class EngineChoice : uint8_t { kDefault, kAuto, kUser, kShm };

constexpr bool has_live_stream(Phase p) {
  return p == Phase::kConnecting || p == Phase::kCompleting || p == Phase::kStream;
}

struct Socket {
  References references;
  std::atomic<engine::Stream*> stream{nullptr};  // non-null while has_live_stream(phase)
  // Once set, the same until the Socket is retired.
  std::atomic<message::Handle*> message{nullptr};
  std::atomic<const char*> reason{""};    // static text for DDP_STATUS and the log
  std::atomic<int> receive_low_water{1};  // SO_RCVLOWAT as this process has set it
  std::atomic<Phase> phase{Phase::kIdle};
  std::atomic<Wish> wish{Wish::kNone};
  std::atomic<Mode> mode{Mode::kPlain};
  std::atomic<engine::Role> role{engine::Role::kInitiator};
  std::atomic<EngineChoice> engine{EngineChoice::kDefault};
  std::atomic<bool> wants_crc{true};
  std::atomic<bool> is_required{false};  // plain TCP is not what the rules or the program allow
  std::atomic<bool> is_nonblocking{false};
  std::atomic<uint8_t> early_looks{0};          // readiness.cpp
  std::atomic<int64_t> kernel_asked_at{0};      // nanoseconds; pollers/memory_answer.h
  std::atomic<bool> has_more_in_kernel{false};  // than memory knows, to tell pollers; likewise
  std::atomic<bool> tells_queue{false};         // TCP_INQ: in the kernel the engine has its own
  std::atomic<bool> has_offered{false};         // memory to a peer, in the registry
  // This program was executed with it as one of 0 to 2; and it only strayed there
  // (run/inherited_streams.h).
  std::atomic<bool> is_given{false}, is_stray{false};
  Inquiry inquiry{};       // set before `phase` is kConnecting
  uint32_t next_free = 0;  // of the pool
};

// From a pool whose memory always stays a Socket: a thread that lost a race with close() reads a
// stale or a new Socket, never unmapped memory. nullptr if memory or the pool (one Socket for each
// descriptor the process could have) is exhausted. Fresh, with one descriptor counted.
Socket* take_socket();

// The last reference is gone. Gives up the stream; `fd` is the descriptor about to be closed, -1 if
// it is closed already. Of a listener nothing is withdrawn: other processes may hold it.
void retire_socket(Socket& socket, int fd);

// Gives up a stream that no phase needs any more.
void drop_dead_stream(Socket& socket, int fd);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_SOCKET_H_
