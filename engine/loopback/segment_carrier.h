// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whole DDP segments in any order (RFC 5041 section 2.1 allows it): no MPA, placement as segments
// come, delivery in order.
#ifndef DDPSOCK_ENGINE_LOOPBACK_SEGMENT_CARRIER_H_
#define DDPSOCK_ENGINE_LOOPBACK_SEGMENT_CARRIER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/loopback/network.h"
#include "engine/queue/carrier.h"
#include "mpa/format.h"

namespace ddpsock::engine::loopback {

class SegmentCarrier final : public Carrier {
 public:
  // Segments of at most `max_ulpdu` bytes; 0: as the link has them.
  SegmentCarrier(const Network::End& lower, uint32_t max_ulpdu)
      : link_(*lower.link),
        end_(lower.end),
        mulpdu_(max_ulpdu != 0 ? std::max<uint32_t>(max_ulpdu, MPA_MIN_MULPDU)
                               : lower.link->emss()) {}

  Capabilities capabilities() const override { return {}; }
  Received receive(Pass& pass) override;
  Turn transmit(Pass& pass) override;
  void shut_write(Time now) override { link_.shut_write(end_, now); }
  void drop(Time now) override { link_.drop(now); }
  uint32_t mulpdu(Time) override { return mulpdu_; }
  void add_to(Need& need, Turn sent, const Pass& pass) override;

 private:
  Link& link_;
  const int end_;
  const uint32_t mulpdu_;
  std::vector<uint8_t> held_;  // a segment the link would not take yet
};

}  // namespace ddpsock::engine::loopback

#endif  // DDPSOCK_ENGINE_LOOPBACK_SEGMENT_CARRIER_H_
