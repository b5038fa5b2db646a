// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/loopback/loopback.h"

#include <new>

#include "engine/loopback/segment_carrier.h"
#include "engine/queue/soft_engine.h"
#include "engine/wire/wire_carrier.h"

namespace ddpsock::engine::loopback {
namespace {

// Ranges beyond gaps that one queue may hold: what a window of small segments can leave.
constexpr uint32_t kMaxFragments = 2048;

SoftConfig soft_config(const Config& config) {
  SoftConfig soft{.max_regions = config.max_regions, .random = config.random};
  if (config.kind == LinkAttr::Kind::kSegments) {
    soft.order = ddp::LlpOrder::kAnyOrder;
    soft.max_fragments = kMaxFragments;
  }
  return soft;
}

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
      : SoftEngine(soft_config(config)), network_(network), kind_(config.kind) {}
  using SoftEngine::has_memory;

  const char* name() const override { return "loopback"; }
  Result<std::unique_ptr<Carrier>, StartError> open_carrier(const Start& start,
                                                            const QpAttr& attr) override {
    const auto end = network_.find(start.lower);
    if (!end || end->link->kind() != kind_) return fail(StartError::kBadLowerLayer);
    std::unique_ptr<Carrier> carrier;
    if (kind_ == LinkAttr::Kind::kBytes) {
      carrier = WireCarrier::make(std::unique_ptr<Channel>(new (std::nothrow) LinkChannel(*end)),
                                  start, attr);
    } else {
      carrier.reset(new (std::nothrow) SegmentCarrier(*end, start.max_ulpdu));
    }
    if (!carrier) return fail(StartError::kNoMemory);
    return carrier;
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
