// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two connected queue pairs and the verbs to make them work: what every conformance test stands on.
#ifndef DDPSOCK_TESTS_CONFORMANCE_RIG_H_
#define DDPSOCK_TESTS_CONFORMANCE_RIG_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/conformance/bench.h"

namespace ddpsock::conformance {

using engine::Capability;
using engine::Completion;
using engine::QpState;
using engine::RecvWr;
using engine::Refusal;
using engine::SendWr;
using engine::WorkKind;
using engine::WorkStatus;
namespace op = engine::op;

struct RigAttr {
  Wish wish = {};
  uint32_t send_depth = 64;
  uint32_t recv_depth = 64;
  uint32_t cq_depth = 256;
  Duration linger = Duration::from_ms(500);
  uint32_t srq_depth = 0;  // not 0: the responder's queue pairs share their receives
  int srq_event_fd = -1;
  int end_event_fd = -1;  // of both ends
};

// Bytes that differ from place to place and from seed to seed.
std::vector<uint8_t> pattern(size_t size, uint32_t seed = 1);

// One end.
class Side {
 public:
  // Members go in the reverse order, as the engine demands.
  std::unique_ptr<engine::Engine> engine;
  engine::Pd pd;
  std::unique_ptr<engine::Cq> send_cq;
  std::unique_ptr<engine::Cq> recv_cq;
  std::unique_ptr<engine::Srq> srq;  // or none
  engine::QpCounters counters;       // of qp
  std::unique_ptr<engine::Qp> qp;
  engine::Start start;
  std::vector<Completion> sent;      // taken from send_cq, oldest first
  std::vector<Completion> received;  // from recv_cq

  bool has(Capability c) const { return (qp ? qp->capabilities() : engine->capabilities()).has(c); }
  // Each posts one request; why it was refused.
  Refusal send(const SendWr& wr);
  Refusal send(uint64_t id, Bytes payload);
  Refusal recv(uint64_t id, MutBytes buffer);  // to the shared queue, if there is one
  // Registered in this side's Pd with TO = address.
  engine::Mr reg(MutBytes memory, engine::Rights rights);
  void poll();
};

class Rig {
 public:
  explicit Rig(const Kind& kind, const RigAttr& attr = {});
  ~Rig();

  std::unique_ptr<Bench> bench;
  Side a;  // the initiator
  Side b;  // the responder

  // One more queue pair at each end, sharing the completion queues, and the responder's the Srq.
  struct Extra {
    std::unique_ptr<engine::Qp> a;
    std::unique_ptr<engine::Qp> b;
  };
  Extra& add_pair(const RigAttr& attr = {});
  Extra& extra(size_t i) { return *extras_[i]; }

  // Advances everything once and polls.
  void step();
  // Until `done`, or too long.
  [[nodiscard]] bool run_until(const std::function<bool()>& done);
  // Long enough for anything on its way to arrive.
  void settle();
  // The responder may send only after it has received: a zero-length Write opens the way.
  void let_responder_speak();
  // Both ends have ended.
  [[nodiscard]] bool run_to_end();

 private:
  std::vector<std::unique_ptr<Extra>> extras_;
};

// The fixture: parameterised over engines.
class Conformance : public ::testing::TestWithParam<Kind> {};

std::string describe(const engine::TerminateInfo& info);

// Ends the test, as skipped, when the engine cannot do it.
#define SKIP_WITHOUT(side, capability)     \
  if (!(side).has(Capability::capability)) \
  GTEST_SKIP() << (side).engine->name() << " lacks " #capability

}  // namespace ddpsock::conformance

#endif  // DDPSOCK_TESTS_CONFORMANCE_RIG_H_
