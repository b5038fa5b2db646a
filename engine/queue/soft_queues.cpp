// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/queue/soft_queues.h"

#include "base/cancellation.h"
#include "engine/queue/soft_engine.h"

namespace ddpsock::engine {

SoftCq::SoftCq(SoftEngine& engine, const CqAttr& attr)
    : engine_(engine), core_(attr.depth), event_fd_(attr.event_fd) {}
SoftCq::~SoftCq() = default;

uint32_t SoftCq::poll(std::span<Completion> out) {
  const std::lock_guard lock(engine_.mutex());
  return core_.poll(out);
}

void SoftCq::arm(Arm what) {
  const std::lock_guard lock(engine_.mutex());
  using CoreArm = rdmap::CompletionQueue::Arm;
  core_.arm(what == Arm::kOff   ? CoreArm::kOff
            : what == Arm::kAny ? CoreArm::kAny
                                : CoreArm::kSolicited);
}

void SoftCq::signal() {
  base::raise_event(event_fd_);
}

SoftSrq::SoftSrq(SoftEngine& engine, const SrqAttr& attr)
    : engine_(engine), pd_(attr.pd), cq_(attr.cq), event_fd_(attr.event_fd) {
  core_.emplace(attr.depth, static_cast<SoftCq&>(*attr.cq).core());
}

SoftSrq::~SoftSrq() {
  {
    const std::lock_guard lock(engine_.mutex());
    core_.reset();
  }
  engine_.leave_pd(pd_);
}

Posted SoftSrq::recv(std::span<const RecvWr> work) {
  return core_->post(work);
}

void SoftSrq::set_limit(uint32_t level) {
  bool has_event = false;
  {
    const std::lock_guard lock(engine_.mutex());
    core_->set_limit(level);
    has_event = take_event();
  }
  if (has_event) signal();
}

void SoftSrq::close() {
  const std::lock_guard lock(engine_.mutex());
  core_->close();
}

void SoftSrq::signal() {
  base::raise_event(event_fd_);
}

}  // namespace ddpsock::engine
