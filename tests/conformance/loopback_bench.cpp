// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/loopback_bench.h"

#include "engine/loopback/loopback.h"
#include "tests/conformance/agreements.h"

namespace ddpsock::conformance {
namespace {

namespace loopback = engine::loopback;

class LoopbackBench final : public Bench {
 public:
  explicit LoopbackBench(loopback::LinkAttr::Kind kind) : kind_(kind) {}

  std::unique_ptr<engine::Engine> make_engine() override {
    return loopback::open(network_, {.kind = kind_});
  }
  Joined join(const Wish& wish) override {
    loopback::LinkAttr attr;
    attr.kind = kind_;
    attr.latency = Duration::from_us(5);
    attr.max_read = kind_ == loopback::LinkAttr::Kind::kBytes ? 100'000 : 0;
    const auto [a, b] = network_.connect(attr);
    Joined joined;
    joined.ends[0] = {.lower = a, .agreed = agreed_by(wish, true), .max_ulpdu = wish.max_ulpdu};
    joined.ends[1] = {.lower = b, .agreed = agreed_by(wish, false), .max_ulpdu = wish.max_ulpdu};
    return joined;
  }
  void inject(engine::LowerLayer end, Bytes octets) override {
    const auto e = network_.find(end);
    e->link->inject(e->end, octets, now_);
  }
  void finish(engine::LowerLayer end) override {
    const auto e = network_.find(end);
    e->link->shut_write(e->end, now_);
  }
  void cut(engine::LowerLayer end) override { network_.find(end)->link->drop(now_); }
  Time now() override { return now_ = now_ + Duration::from_us(10); }

 private:
  const loopback::LinkAttr::Kind kind_;
  loopback::Network network_{1};
  Time now_{};
};

}  // namespace

std::unique_ptr<Bench> loopback_bytes() {
  return std::make_unique<LoopbackBench>(loopback::LinkAttr::Kind::kBytes);
}
std::unique_ptr<Bench> loopback_segments() {
  return std::make_unique<LoopbackBench>(loopback::LinkAttr::Kind::kSegments);
}

}  // namespace ddpsock::conformance
