// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Segments in memory shared with the peer. The Channel beside it carries bells: an FPDU each that
// says nothing (a Write of no octets), so that the wire stays iWARP for whoever looks at it; what
// comes there is counted for nothing and thrown away. And it carries the end: when the peer has
// closed it, or is gone, what lies in the memory is still taken.
#ifndef DDPSOCK_ENGINE_MEMORY_MEMORY_CARRIER_H_
#define DDPSOCK_ENGINE_MEMORY_MEMORY_CARRIER_H_

#include <atomic>
#include <memory>
#include <optional>

#include "engine/memory/memory_link.h"
#include "engine/memory/peer_regions.h"
#include "engine/queue/carrier.h"
#include "engine/wire/channel.h"

namespace ddpsock::engine {

class MemoryCarrier final : public Carrier, private DirectCarrier {
 public:
  // All outlive it. `regions`: of this process, what the peer may reach; nullptr: nothing.
  MemoryCarrier(std::unique_ptr<Channel> channel, shm::MessageMemory& memory,
                shm::RegionTable* regions, const Start& start)
      : channel_(std::move(channel)),
        memory_(memory),
        own_regions_(regions),
        peer_regions_(memory),
        link_(memory, start.tap),
        max_ulpdu_(start.max_ulpdu),
        tap_(start.tap) {}

  ~MemoryCarrier() override;

  Capabilities capabilities() const override { return {Capability::kSegmentTap}; }
  Received receive(Pass& pass) override;
  Turn transmit(Pass& pass) override;
  void shut_write(Time now) override {
    channel_->shut_write(now);
    if (tap_ != nullptr) tap_->sent_fin(now);
  }
  void drop(Time now) override { channel_->drop(now); }
  uint32_t mulpdu(Time) override { return link_.mulpdu(max_ulpdu_); }
  void add_to(Need& need, Turn sent, const Pass& pass) override;
  void revoke() override {
    memory_.end_reaching();
    link_.revoke();
  }
  bool has_news() const override {
    return is_unsettled_.load(std::memory_order_relaxed) || link_.has_record();
  }
  DirectCarrier* direct() override { return tap_ == nullptr ? this : nullptr; }

 private:
  bool send_directly(rdmap::DirectWay& core, const rdmap::SendWr& wr,
                     rdmap::DirectSegment& segment) override;
  void finish_sends() override { ring_directly(); }
  uint8_t* locate(const rdmap::Aim& aim) override;
  // A system call, which takes longer than the answer of a peer that looks, and far shorter than to
  // wake one that does not.
  bool is_fetching_faster() const override { return !link_.is_peer_looking(); }
  bool fetch(const rdmap::Aim& aim, MutBytes to) override;
  bool has_arrived() const override { return link_.has_record(); }
  void take_in(rdmap::Qp& core, std::unique_lock<std::mutex>& lock) override;
  uint32_t receive_directly(rdmap::DirectWay& core, std::span<rdmap::Completion> out) override;

  Received look_at_wire(Pass& pass);
  Turn ring(Pass& pass, Turn turn);
  void ring_directly();
  [[nodiscard]] bool send_bell(Time now);

  bool has_peer_placed_all();
  void tell_regions(const rdmap::Qp& core);

  const std::unique_ptr<Channel> channel_;
  shm::MessageMemory& memory_;
  shm::RegionTable* const own_regions_;
  bool are_regions_told_ = false;
  std::optional<shm::RegionTablePlace> told_;
  shm::PeerRegions peer_regions_;
  MemoryLink link_;
  const uint32_t max_ulpdu_;
  WireTap* const tap_;
  bool is_watched_ = true;  // bells come
  bool is_wire_lost_ = false;
  std::optional<uint64_t> last_;  // up to where is read behind the end of the wire
  // advance() has something to do by itself. Polled, so written only where it changes.
  std::atomic<bool> is_unsettled_{true};
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_MEMORY_MEMORY_CARRIER_H_
