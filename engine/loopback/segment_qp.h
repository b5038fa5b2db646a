// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A queue pair whose lower layer carries whole DDP segments in any order (RFC 5041 section 2.1
// allows it): no MPA, placement as segments come, delivery in order.
#ifndef DDPSOCK_ENGINE_LOOPBACK_SEGMENT_QP_H_
#define DDPSOCK_ENGINE_LOOPBACK_SEGMENT_QP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/loopback/network.h"
#include "engine/soft/soft_engine.h"
#include "rdmap/qp.h"

namespace ddpsock::engine::loopback {

class SegmentQp final : public Qp {
 public:
  SegmentQp(SoftEngine& engine, Network& network, const QpAttr& attr, rdmap::QpAttr core);
  ~SegmentQp() override;
  bool has_memory() const { return core_->has_memory(); }

  uint32_t number() const override { return core_->number(); }
  Status<StartError> start(const Start& start) override;
  Posted send(std::span<const SendWr> work) override;
  Posted recv(std::span<const RecvWr> work) override;
  Need advance(Time now, Budget budget) override;
  void drain() override;
  void abort(std::optional<TermCode> why) override;
  Result<Residue, DetachError> detach() override;
  QpState state() const override;
  TerminateInfo terminate_info() const override;

 private:
  // All with the lock.
  void receive(Time now);
  void take(const Arrival& arrival);
  bool transmit(Time now);
  void finish(Time now);
  void end(rdmap::LlpEnd how);
  void signal();

  SoftEngine& engine_;
  Network& network_;
  const QpAttr attr_;
  SoftCq& send_cq_;
  SoftCq& recv_cq_;
  SoftSrq* const srq_;
  std::optional<rdmap::Qp> core_;
  std::optional<Network::End> lower_;
  uint32_t mulpdu_ = 0;
  std::vector<uint8_t> held_;  // a segment the link would not take yet
  bool is_fin_sent_ = false;
  bool is_fin_received_ = false;
  Time linger_end_ = kNever;
};

}  // namespace ddpsock::engine::loopback

#endif  // DDPSOCK_ENGINE_LOOPBACK_SEGMENT_QP_H_
