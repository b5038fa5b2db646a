// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One end of a simulated connection: its memory, its queue pair, and a ledger of what was posted
// and what came of it.
#ifndef DDPSOCK_TESTS_SIM_NODE_H_
#define DDPSOCK_TESTS_SIM_NODE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/sim/scenario.h"

namespace ddpsock::sim {

// Memory between two canaries.
class Guarded {
 public:
  explicit Guarded(size_t size, uint8_t fill = 0);
  MutBytes bytes() { return MutBytes(memory_).subspan(kGuard, memory_.size() - 2 * kGuard); }
  Bytes bytes() const { return Bytes(memory_).subspan(kGuard, memory_.size() - 2 * kGuard); }
  bool is_guard_intact() const;

 private:
  static constexpr size_t kGuard = 64;
  std::vector<uint8_t> memory_;
};

// What the peer may reach, to be told to it.
struct Grants {
  engine::Mr write;
  engine::Mr read;
  engine::Mr counter;
  engine::Mr expendable;  // to be invalidated
};

class Node {
 public:
  // `end`: 0 initiates. The peer's work decides what is granted and received here.
  Node(int end, const Scenario& scenario, std::unique_ptr<engine::Engine> engine);

  void start(engine::LowerLayer lower);
  const Grants& grants() const { return grants_; }
  void learn(const Grants& peer) { peer_ = peer; }

  // Posts some of what is left.
  void post(std::mt19937_64& random);
  void poll();
  engine::Qp& qp() { return *qp_; }

  bool has_posted_all() const { return next_op_ == work_.ops.size(); }
  bool has_completed_all() const { return next_send_completion_ == work_.ops.size(); }
  bool has_received_all() const { return received_ok_ == expected_.size(); }
  // Fewer receives were posted than messages come.
  bool lacks_receives() const { return receives_.size() < expected_.size(); }
  engine::TerminateInfo info() const { return qp_->terminate_info(); }
  bool has_ended() const { return qp_->state() == engine::QpState::kEnded; }

  // At the end: the first invariant that does not hold, or "".
  std::string verdict(const Node& peer) const;
  // Lines for -v.
  std::string story() const;

 private:
  enum class Fate : uint8_t { kPending, kOk, kFailed };
  struct Record {
    Fate fate = Fate::kPending;
    uint32_t completions = 0;
    uint64_t original = 0;
  };

  void post_receives();
  bool post_one(size_t op, std::mt19937_64& random);
  void note(const engine::Completion& c);
  void note_receive(const engine::Completion& c);
  void complain(const std::string& what);
  void check_message(size_t index, const engine::Completion& c);
  std::string check_ledger() const;
  std::string check_memory(const Node& peer) const;
  std::string check_success(const Node& peer) const;

  const int end_;
  const Scenario& scenario_;
  const Work& work_;
  std::vector<size_t> expected_;  // indices of the peer's ops that are received here, in order
  const Work& peer_work_;

  std::vector<std::vector<uint8_t>> payloads_;  // of our ops
  Guarded grant_;
  Guarded source_;
  Guarded counter_;
  Guarded expendable_;
  Guarded sink_;
  std::vector<Guarded> buffers_;

  std::unique_ptr<engine::Engine> engine_;
  engine::Pd pd_;
  std::unique_ptr<engine::Cq> send_cq_;
  std::unique_ptr<engine::Cq> recv_cq_;
  std::unique_ptr<engine::Qp> qp_;
  Grants grants_;
  Grants peer_;
  engine::Mr sink_mr_;

  size_t next_op_ = 0;
  std::vector<Record> sends_;
  std::vector<Record> receives_;
  size_t next_send_completion_ = 0;
  size_t received_ok_ = 0;
  std::string complaint_;
};

}  // namespace ddpsock::sim

#endif  // DDPSOCK_TESTS_SIM_NODE_H_
