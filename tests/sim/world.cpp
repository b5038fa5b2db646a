// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/sim/world.h"

#include <algorithm>
#include <random>
#include <utility>

#include "engine/loopback/loopback.h"
#include "engine/wrap/fault.h"
#include "tests/sim/node.h"

namespace ddpsock::sim {
namespace {

namespace loopback = engine::loopback;
using engine::EndReason;

// More than any scenario needs: what runs longer is stuck.
constexpr uint32_t kMaxSteps = 400'000;
constexpr Duration kPatience = Duration::from_ms(5'000);  // virtual

// STag keys must repeat with the seed.
thread_local std::mt19937_64 key_source;
bool repeatable_random(MutBytes out) {
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(key_source());
  return true;
}

class World {
 public:
  explicit World(const Scenario& s)
      : scenario_(s),
        random_(s.seed * 2 + 1),
        network_(s.seed),
        nodes_{Node(0, s, make_engine(0)), Node(1, s, make_engine(1))} {
    const auto [a, b] = network_.connect(s.link);
    lower_ = a;
    nodes_[0].learn(nodes_[1].grants());
    nodes_[1].learn(nodes_[0].grants());
    nodes_[0].start(a);
    nodes_[1].start(b);
  }

  Outcome run(bool wants_story) {
    Outcome out;
    while (!has_ended() && steps_ < kMaxSteps && now_ - Time{} < kPatience && !is_stuck_) step();
    if (!has_ended() && !scenario_.is_healthy()) {
      // Damage can leave both ends waiting; even so they must end when told to.
      out.was_cut_short = true;
      for (Node& n : nodes_) n.qp().abort(std::nullopt);
      for (Node& n : nodes_) n.qp().advance(now_, {});
    }
    for (Node& n : nodes_) n.poll();
    for (size_t i = 0; i < 2 && out.failure.empty(); ++i) {
      out.failure = nodes_[i].verdict(nodes_[1 - i]);
    }
    if (out.failure.empty()) out.failure = disagreement();
    const auto end = network_.find(lower_);
    out.octets_sent = {end->link->octets_sent(0), end->link->octets_sent(1)};
    if (wants_story) {
      out.story = describe(scenario_) + "\n  steps " + std::to_string(steps_) + ", time " +
                  std::to_string(now_.ns / 1000) + " us" + (is_stuck_ ? ", stuck" : "") +
                  (out.was_cut_short ? ", cut short" : "") + "\n" + nodes_[0].story() +
                  nodes_[1].story();
    }
    return out;
  }

 private:
  std::unique_ptr<engine::Engine> make_engine(uint64_t salt) {
    key_source.seed(scenario_.seed + salt);
    return engine::wrap::fault(
        loopback::open(
            network_, {.kind = scenario_.link.kind, .random = repeatable_random, .max_regions = 8}),
        scenario_.faults, scenario_.seed + salt);
  }

  bool has_ended() const { return nodes_[0].has_ended() && nodes_[1].has_ended(); }

  void step() {
    ++steps_;
    bool has_progress = false;
    Time next = kNever;
    for (Node& n : nodes_) {
      const bool had_work = !n.has_posted_all();
      n.post(random_);
      has_progress |= had_work;
      const engine::Need need = n.qp().advance(now_, {});
      next = std::min(next, need.deadline);
      if (random_() % 2 == 0) n.poll();
    }
    // Each end drains once both have all they wait for.
    const auto is_content = [](const Node& n) {
      return n.has_completed_all() && n.has_received_all();
    };
    if (!is_drained_) {
      for (Node& n : nodes_) n.poll();
      if (is_content(nodes_[0]) && is_content(nodes_[1])) {
        is_drained_ = has_progress = true;
        nodes_[random_() % 2].qp().drain();
      }
    }
    // What was sent after its receiver's turn is not in that one's Need.
    const loopback::Link& link = *network_.find(lower_)->link;
    next = std::min({next, link.next_arrival(0), link.next_arrival(1)});
    const uint64_t octets = link.octets_sent(0) + link.octets_sent(1);
    has_progress |= octets != std::exchange(octets_, octets);
    // Nothing due, nothing in flight, nothing to post. One idle round may be its own doing.
    idle_rounds_ = has_progress || next != kNever ? 0 : idle_rounds_ + 1;
    is_stuck_ = idle_rounds_ > 4;
    const Time soon = now_ + Duration{static_cast<int64_t>(1 + random_() % 5'000)};
    now_ = next > now_ && next != kNever && !has_progress ? std::max(soon, next) : soon;
  }

  // Of two ends one cannot have ended for another reason than the other, as far as the link lets
  // them know.
  std::string disagreement() const {
    const auto a = nodes_[0].info();
    const auto b = nodes_[1].info();
    if (scenario_.has_silent_damage()) return "";
    const auto is_answer = [](const auto& told, const auto& teller) {
      return told.reason == EndReason::kTerminateReceived &&
             (teller.reason != EndReason::kTerminateSent ||
              told.terminate.code != teller.terminate.code);
    };
    if (is_answer(a, b) || is_answer(b, a)) return "a Terminate was received that was not sent";
    if (a.reason == EndReason::kTerminateSent && b.reason == EndReason::kTerminateSent &&
        !has_damage()) {
      return "both ends blame the other";
    }
    if (scenario_.missing_receives != 0 && nodes_[1].lacks_receives() && !has_damage()) {
      if (b.reason != EndReason::kTerminateSent || a.reason != EndReason::kTerminateReceived) {
        return "a Send without a receive was not answered by a Terminate";
      }
    }
    return "";
  }
  bool has_damage() const {
    return scenario_.link.flip != 0 || scenario_.link.spoil != 0 || scenario_.link.drop != 0;
  }

  const Scenario& scenario_;
  std::mt19937_64 random_;
  loopback::Network network_;
  std::array<Node, 2> nodes_;
  engine::LowerLayer lower_{};
  Time now_{};
  uint32_t steps_ = 0;
  uint64_t octets_ = 0;
  uint32_t idle_rounds_ = 0;
  bool is_drained_ = false;
  bool is_stuck_ = false;
};

}  // namespace

Outcome run(const Scenario& scenario, bool wants_story) {
  return World(scenario).run(wants_story);
}

}  // namespace ddpsock::sim
