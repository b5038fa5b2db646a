// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The queue pair in software, whatever carries it: posting, completions, ends, errors and states
// around the RDMAP core, and a Carrier, progressing inside advance() in the thread that calls it.
#ifndef DDPSOCK_ENGINE_QUEUE_SOFT_QP_H_
#define DDPSOCK_ENGINE_QUEUE_SOFT_QP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/engine.h"
#include "engine/queue/carrier.h"
#include "engine/queue/soft_engine.h"
#include "rdmap/qp.h"

namespace ddpsock::engine {

class SoftQp final : public Qp {
 public:
  SoftQp(SoftEngine& engine, const QpAttr& attr, const rdmap::QpAttr& core);
  ~SoftQp() override;
  bool has_memory() const { return core_->has_memory(); }

  uint32_t number() const override { return core_->number(); }
  Status<StartError> start(const Start& start) override;
  Posted send(std::span<const SendWr> work) override;
  Posted recv(std::span<const RecvWr> work) override;
  Need advance(Time now, Budget budget) override;
  bool has_news() const override;
  uint32_t send_directly(std::span<const SendWr> work) override;
  uint32_t receive_directly(std::span<Completion> out) override;
  void drain() override;
  void abort(std::optional<TermCode> why) override;
  Capabilities capabilities() const override;
  QpState state() const override;
  TerminateInfo terminate_info() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  bool send_signalled_directly(const SendWr& wr);
  bool reach_directly(const SendWr& wr);
  bool fetch_directly(const SendWr& wr, const rdmap::Aim& aim);
  void take_in(Lock& lock);
  // With the lock, which those that signal let go of meanwhile.
  Turn receive(Pass& pass);
  void settle(Lock& lock, Time now, bool is_lost);
  Need need(const Pass& pass, Turn received, Turn sent);
  void end(Lock& lock, rdmap::LlpEnd how);
  void finish_ended();

  SoftEngine& engine_;
  std::atomic<const Carrier*> polled_{
      nullptr};  // carrier_, for has_news(): beside what stays as it is
  const QpAttr attr_;
  SoftQueues queues_;
  std::optional<rdmap::Qp> core_;  // under the lock; ends before the count of its Pd goes down

  // Under the lock.
  bool is_advancing_ = false;
  bool is_drop_wanted_ = false;
  bool is_fin_sent_ = false;
  bool is_fin_received_ = false;
  bool is_end_told_ = false;
  Time linger_end_ = kNever;

  // Set by start().
  std::unique_ptr<Carrier> carrier_;
  DirectCarrier* direct_ = nullptr;  // the same, if it has such a way
  std::optional<rdmap::DirectWay> way_;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_QUEUE_SOFT_QP_H_
