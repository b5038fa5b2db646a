// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A queue pair in software over a byte stream: RDMAP core, MPA framing, and a Channel, progressing
// inside advance() in the thread that calls it.
#ifndef DDPSOCK_ENGINE_SOFT_SOFT_QP_H_
#define DDPSOCK_ENGINE_SOFT_SOFT_QP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/engine.h"
#include "engine/soft/channel.h"
#include "engine/soft/memory_link.h"
#include "engine/soft/nudge.h"
#include "engine/soft/receiver.h"
#include "engine/soft/soft_engine.h"
#include "engine/soft/transmitter.h"
#include "rdmap/qp.h"

namespace ddpsock::engine {

class SoftQp final : public Qp {
 public:
  SoftQp(SoftEngine& engine, const QpAttr& attr, const rdmap::QpAttr& core);
  ~SoftQp() override;
  bool has_memory() const { return core_->has_memory() && tx_.has_memory(); }

  uint32_t number() const override { return core_->number(); }
  Status<StartError> start(const Start& start) override;
  Posted send(std::span<const SendWr> work) override;
  Posted recv(std::span<const RecvWr> work) override;
  Need advance(Time now, Budget budget) override;
  bool has_news() const override;
  void drain() override;
  void abort(std::optional<TermCode> why) override;
  Result<Residue, DetachError> detach() override;
  QpState state() const override;
  TerminateInfo terminate_info() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The thread inside advance() owns the channel, tx_, rx_ and what is marked so below. These give
  // the lock back while they move bytes.
  Turn receive(Lock& lock, Time now, uint32_t budget);
  Turn transmit(Lock& lock, Time now, uint32_t budget);
  // Without the lock. The first two do not wait, and no thread is cancelled in them.
  Result<size_t> receive_from_channel(std::span<const MutBytes> to, Time now);
  Result<size_t> send_to_channel(std::span<const Bytes> from, Time now);
  uint32_t mulpdu(Time now);
  // The same where segments travel in memory; soft_qp_memory.cpp.
  Need advance_in_memory(Time now, Budget budget);
  Turn look_at_wire(Lock& lock, Time now, uint32_t budget);
  Turn transmit_to_memory(Lock& lock, Time now, Budget budget);
  // And these with it.
  void tell_sent(Lock& lock, uint32_t fpdus);
  void note_mulpdu(uint32_t mulpdu);
  void finish(Lock& lock, Time now, bool is_lost);
  void settle(Lock& lock, Time now, bool is_lost);
  Need need(Time now, Turn received, Turn sent);
  // With the lock.
  void end(Lock& lock, rdmap::LlpEnd how);
  // Lets go of the lock while it does.
  void signal(Lock& lock);

  SoftEngine& engine_;
  const Pd pd_;
  const Duration linger_;
  const Duration nudge_after_;
  const uint32_t max_ird_;
  const uint32_t max_ord_;
  SoftCq& send_cq_;
  SoftCq& recv_cq_;
  SoftSrq* const srq_;
  std::optional<rdmap::Qp> core_;  // under the lock; ends before the count of its Pd goes down

  // Under the lock.
  bool is_advancing_ = false;
  bool is_drop_wanted_ = false;
  bool is_detaching_ = false;

  // Set by start(), then the advancing thread's.
  LowerLayer lower_{};
  std::unique_ptr<Channel> channel_;
  WireTap* tap_ = nullptr;
  uint32_t max_ulpdu_ = 0;
  bool send_markers_ = false;
  Transmitter tx_;
  Receiver rx_;
  bool is_fin_sent_ = false;
  bool is_fin_received_ = false;
  Time linger_end_ = kNever;
  Nudge nudge_;
  std::optional<MemoryLink> link_;
  std::atomic<bool> is_in_memory_{false};  // link_ is there
  bool is_watched_ = true;                 // bells come
  std::atomic<bool> is_unsettled_{true};   // advance() has something to do by itself
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_SOFT_SOFT_QP_H_
