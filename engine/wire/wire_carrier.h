// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Segments as FPDUs over a reliable byte stream: a TCP socket, what lies between the chunks of one,
// or one end of a simulated link.
#ifndef DDPSOCK_ENGINE_WIRE_WIRE_CARRIER_H_
#define DDPSOCK_ENGINE_WIRE_WIRE_CARRIER_H_

#include <memory>

#include "engine/queue/carrier.h"
#include "engine/wire/channel.h"
#include "engine/wire/nudge.h"
#include "engine/wire/receiver.h"
#include "engine/wire/transmitter.h"

namespace ddpsock::engine {

class WireCarrier final : public Carrier {
 public:
  // nullptr: no memory.
  static std::unique_ptr<Carrier> make(std::unique_ptr<Channel> channel, const Start& start,
                                       const QpAttr& attr);

  Capabilities capabilities() const override { return {Capability::kWireTap}; }
  Received receive(Pass& pass) override;
  Turn transmit(Pass& pass) override;
  void shut_write(Time now) override;
  void drop(Time now) override { channel_->drop(now); }
  uint32_t mulpdu(Time now) override;
  void add_to(Need& need, Turn sent, const Pass& pass) override;

 private:
  WireCarrier(std::unique_ptr<Channel> channel, const Start& start, const QpAttr& attr);

  bool gather(Pass& pass, uint32_t budget);

  const std::unique_ptr<Channel> channel_;
  WireTap* const tap_;
  const uint32_t max_ulpdu_;
  const bool send_markers_;
  Transmitter tx_;
  Receiver rx_;
  Nudge nudge_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_WIRE_WIRE_CARRIER_H_
