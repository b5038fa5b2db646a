// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who watches the connections of a process: what `ddprun --pcap` and `--trace` write. At most one,
// put in place before the first connection, and there until the process ends; nullptr otherwise,
// which is all that a connection nobody watches pays for.
//
// All calls are thread-safe and async-signal-safe, keep errno, never fail and never block but for
// the writing. They are made where the lease of the direction is held.
#ifndef DDPSOCK_ENGINE_OBSERVER_H_
#define DDPSOCK_ENGINE_OBSERVER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/tcp_address.h"

namespace ddpsock::engine {

class Engine;

// Which stream it is.
struct Named {
  base::TcpAddress local{}, remote{};
  int fd = -1;  // as it was opened
  bool is_initiator = false;
  bool has_crc = true;
  uint8_t revision = 2;  // of MPA
};

// What an observer keeps of a stream, under its own lock. Lies where the stream does, so that
// nothing is allocated; a forked child finds its parent's.
struct Watched {
  uint32_t generation = 0;  // of the process (base/process.h); 0: not met yet
  bool is_captured = false;
  std::array<uint32_t, 2> sequence{};  // of the next octet in the capture: ours, the peer's
  std::array<bool, 2> has_fin{};
};

class Observer {
 public:
  enum class Way : uint8_t { kSent, kReceived };
  // What carries the FPDU: the socket, or memory, from which it is made up for who looks.
  enum class Carrier : uint8_t { kSocket, kMemory };
  enum class Event : uint8_t {
    kStarted,    // DDPMODE begins; `text` is why
    kInherited,  // ... in this program, which its predecessor executed
    kInMemory,   // one direction has moved into memory; `text` is which
    kPlain,      // plain TCP from here on; `text` is why
    kFailed,     // a protocol error, or the peer's Terminate, has ended it; `text` is why
    kError,      // a call of the program has failed with `error`
    kSentEnd,    // FIN
    kReceivedEnd,
    kClosed,  // this process has given it up
  };

  // One whole FPDU, in pieces: once the lower layer took it, or before the program gets it.
  virtual void moved(const Named& who, Watched& state, Way way, Carrier carrier,
                     std::span<const Bytes> fpdu) = 0;
  virtual void happened(const Named& who, Watched& state, Event event, const char* text,
                        int error) = 0;
  // A connection that never was a stream; `reason` is static text.
  virtual void stayed_plain(int fd, const char* reason) = 0;
  // From now on no system call is made, `why` not: a filter is about to stand against it.
  virtual void stop_recording(const char* why) = 0;
  // The program closes these numbers, or has them mean something else: what lies there goes
  // elsewhere.
  virtual void make_room(unsigned first, unsigned last) = 0;
  // An engine of queue pairs that tells of what `engine` does; nullptr: no memory.
  virtual std::unique_ptr<Engine> around(std::unique_ptr<Engine> engine) = 0;

 protected:
  ~Observer() = default;
};

// Set once, for good.
inline constinit Observer* observer = nullptr;
// Is anything told to it still? False, too, once all that it writes has ended: from then on it does
// nothing.
inline constinit std::atomic<bool> is_observed{false};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_OBSERVER_H_
