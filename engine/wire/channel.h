// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The reliable byte stream under a carrier: a TCP socket, or one end of a simulated link.
#ifndef DDPSOCK_ENGINE_WIRE_CHANNEL_H_
#define DDPSOCK_ENGINE_WIRE_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"

namespace ddpsock::engine {

// Used by one thread at a time. Never blocks: EAGAIN says that nothing could be moved now, any
// other errno that the connection is lost.
class Channel {
 public:
  virtual ~Channel() = default;

  // Takes bytes from the front of `from`; how many, at least one.
  virtual Result<size_t> send(std::span<const Bytes> from, Time now) = 0;
  // Fills `to` in order; 0: the peer's FIN.
  virtual Result<size_t> receive(std::span<const MutBytes> to, Time now) = 0;
  // After fewer bytes than asked for nothing more was there: no need to ask again at once.
  virtual bool is_emptied_by_short_read() const = 0;

  // FIN after what was sent.
  virtual void shut_write(Time now) = 0;
  // Ends both directions at once, unsent bytes or not.
  virtual void drop(Time now) = 0;

  // The payload of one TCP segment now; moves with TCP options and path MTU (RFC 5044 section 5).
  virtual uint32_t emss(Time now) = 0;
  // When something will happen by itself, if the channel knows.
  virtual Time next_event(Time now) const = 0;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_WIRE_CHANNEL_H_
