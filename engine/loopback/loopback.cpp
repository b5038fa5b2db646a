// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/loopback/loopback.h"

#include <new>

#include "engine/loopback/segment_qp.h"
#include "engine/soft/channel.h"
#include "engine/soft/soft_engine.h"
#include "engine/soft/soft_limits.h"

namespace ddpsock::engine::loopback {
namespace {

class LinkChannel final : public Channel {
 public:
  explicit LinkChannel(Network::End end) : link_(*end.link), end_(end.end) {}

  Result<size_t> send(std::span<const Bytes> from, Time now) override {
    return link_.send(end_, from, now);
  }
  Result<size_t> receive(std::span<const MutBytes> to, Time now) override {
    return link_.receive(end_, to, now);
  }
  bool is_emptied_by_short_read() const override { return false; }
  void shut_write(Time now) override { link_.shut_write(end_, now); }
  void drop(Time now) override { link_.drop(now); }
  uint32_t emss(Time) override { return link_.emss(); }
  Time next_event(Time) const override { return link_.next_arrival(end_); }

 private:
  Link& link_;
  const int end_;
};

class LoopbackEngine final : public SoftEngine {
 public:
  LoopbackEngine(Network& network, const Config& config)
      : SoftEngine({.limits = soft_limits(config.max_regions), .random = config.random}),
        network_(network),
        kind_(config.kind) {}
  using SoftEngine::has_memory;

  const char* name() const override { return "loopback"; }
  Capabilities capabilities() const override {
    if (kind_ == LinkAttr::Kind::kBytes) return kSoftCapabilities.with(Capability::kWireTap);
    return kSoftCapabilities;
  }

  Result<std::unique_ptr<Channel>, StartError> open_channel(const Start& start) override {
    const auto end = network_.find(start.lower);
    if (!end || end->link->kind() != LinkAttr::Kind::kBytes) {
      return fail(StartError::kBadLowerLayer);
    }
    std::unique_ptr<Channel> channel(new (std::nothrow) LinkChannel(*end));
    if (!channel) return fail(StartError::kNoMemory);
    return channel;
  }

  Result<std::unique_ptr<Qp>, SetupError> make_qp(const QpAttr& attr) override {
    if (kind_ == LinkAttr::Kind::kBytes) return SoftEngine::make_qp(attr);
    const auto core = join_pd(attr);
    if (!core) return fail(core.error());
    std::unique_ptr<SegmentQp> qp(new (std::nothrow) SegmentQp(*this, network_, attr, *core));
    if (!qp) {
      leave_pd(attr.pd);
      return fail(SetupError::kNoMemory);
    }
    if (!qp->has_memory()) return fail(SetupError::kNoMemory);
    return qp;
  }

 private:
  Network& network_;
  const LinkAttr::Kind kind_;
};

}  // namespace

std::unique_ptr<Engine> open(Network& network, const Config& config) {
  std::unique_ptr<LoopbackEngine> engine(new (std::nothrow) LoopbackEngine(network, config));
  if (!engine || !engine->has_memory()) return nullptr;
  return engine;
}

}  // namespace ddpsock::engine::loopback
