// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TESTS_CONFORMANCE_BENCH_AROUND_H_
#define DDPSOCK_TESTS_CONFORMANCE_BENCH_AROUND_H_

#include <memory>
#include <utility>

#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

// Another bench with other engines: those of `inner()`, and something around each.
class BenchAround : public Bench {
 public:
  explicit BenchAround(std::unique_ptr<Bench> inner) : inner_(std::move(inner)) {}
  Joined join(const Wish& wish) override { return inner_->join(wish); }
  void inject(engine::LowerLayer end, Bytes octets) override { inner_->inject(end, octets); }
  void finish(engine::LowerLayer end) override { inner_->finish(end); }
  void cut(engine::LowerLayer end) override { inner_->cut(end); }
  Time now() override { return inner_->now(); }

 protected:
  Bench& inner() { return *inner_; }

 private:
  std::unique_ptr<Bench> inner_;
};

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_BENCH_AROUND_H_
