// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/conformance/wrapped_bench.h"

#include <cstdio>
#include <utility>

#include "engine/wrap/fault.h"
#include "engine/wrap/pcap.h"
#include "engine/wrap/trace.h"
#include "tests/conformance/bench_around.h"

namespace ddpsock::conformance {
namespace {

using engine::Engine;
using WrapEngine = std::unique_ptr<Engine> (*)(std::unique_ptr<Engine>, engine::wrap::Records&);

class WrappedBench final : public BenchAround {
 public:
  WrappedBench(std::unique_ptr<Bench> inner, WrapEngine wrap)
      : BenchAround(std::move(inner)), wrap_(wrap), out_(std::tmpfile()) {}
  ~WrappedBench() override { std::fclose(out_); }

  std::unique_ptr<Engine> make_engine() override { return wrap_(inner().make_engine(), records_); }

 private:
  const WrapEngine wrap_;
  std::FILE* out_;
  engine::wrap::StdioRecords records_{out_};
};

std::unique_ptr<Engine> capture(std::unique_ptr<Engine> inner, engine::wrap::Records& out) {
  return engine::wrap::pcap(std::move(inner), out);
}
std::unique_ptr<Engine> trace(std::unique_ptr<Engine> inner, engine::wrap::Records& out) {
  return engine::wrap::trace(std::move(inner), out);
}
std::unique_ptr<Engine> idle_fault(std::unique_ptr<Engine> inner, engine::wrap::Records&) {
  return engine::wrap::fault(std::move(inner), {}, 1);
}

}  // namespace

std::unique_ptr<Bench> with_trace(std::unique_ptr<Bench> inner) {
  return std::make_unique<WrappedBench>(std::move(inner), trace);
}
std::unique_ptr<Bench> with_pcap(std::unique_ptr<Bench> inner) {
  return std::make_unique<WrappedBench>(std::move(inner), capture);
}
std::unique_ptr<Bench> with_idle_fault(std::unique_ptr<Bench> inner) {
  return std::make_unique<WrappedBench>(std::move(inner), idle_fault);
}

}  // namespace ddpsock::conformance
