// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The two lanes of a stream as one process sees them, for the length of a call.
#ifndef DDPSOCK_STREAM_LANES_H_
#define DDPSOCK_STREAM_LANES_H_

#include "stream/connection.h"

namespace ddpsock::engine {

constexpr shm::End other(shm::End end) {
  return end == shm::End::kConnected ? shm::End::kAccepted : shm::End::kConnected;
}

// What comes. REQUIRES: the receive lease, and that this process has mapped the memory.
class InLane {
 public:
  explicit InLane(Connection& c)
      : InLane(c, *c.segment.load(std::memory_order_acquire), other(c.r.memory.end)) {}
  InLane(const InLane&) = delete;
  shm::LaneReader* operator->() { return &lane_; }
  const shm::LaneReader* operator->() const { return &lane_; }
  shm::LaneReader& operator*() { return lane_; }

 private:
  InLane(Connection& c, shm::Segment& segment, shm::End end)
      : rings_(&segment, end), lane_(segment.lane_from(end), c.r.memory.rx, rings_) {}
  shm::MappedRings rings_;
  shm::LaneReader lane_;
};

// What is sent. REQUIRES: the send lease, and that this process has mapped the memory.
class OutLane {
 public:
  explicit OutLane(Connection& c)
      : OutLane(c, *c.segment.load(std::memory_order_acquire), c.r.memory.end) {}
  OutLane(const OutLane&) = delete;
  shm::LaneWriter* operator->() { return &lane_; }

 private:
  OutLane(Connection& c, shm::Segment& segment, shm::End end)
      : rings_(&segment, end), lane_(segment.lane_from(end), c.r.memory.tx, rings_) {}
  shm::MappedRings rings_;
  shm::LaneWriter lane_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_LANES_H_
