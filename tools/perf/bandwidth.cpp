// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <array>

#include "tools/perf/measure.h"

namespace ddpsock::perf {
namespace {

constexpr uint32_t kBatch = 64;
// One completion for so many requests, or for a quarter of the queue.
constexpr uint32_t kSignalEvery = 32;

// The end that posts requests, as many as may be under way.
class Sender {
 public:
  Sender(Session& session, uint32_t size)
      : session_(session), payload_(session.buffers.own().first(size)) {
    const uint32_t depth = session.plan.send_depth;
    signal_every_ = std::clamp(depth / 4, 1u, kSignalEvery);
    batch_.fill(session.request(payload_, false));
  }

  bool is_done() const { return completed_ == session_.plan.iterations; }

  bool may_post() const { return room() != 0; }

  // Posts what may be posted now.
  Status<Error> post() {
    while (const uint32_t n = std::min(room(), kBatch)) {
      for (uint32_t i = 0; i < n; ++i) batch_[i].is_signalled = is_signalled(posted_ + i);
      const uint32_t accepted = session_.data().qp().send(std::span(batch_).first(n)).accepted;
      if (accepted == 0) return fail_with("data connection: " + session_.data().describe_end());
      posted_ += accepted;
    }
    return {};
  }

  void completed(uint32_t completions) {
    for (; completions != 0; --completions) {
      completed_ = std::min(completed_ + signal_every_, session_.plan.iterations);
    }
  }

 private:
  bool is_signalled(uint32_t index) const {
    return (index + 1) % signal_every_ == 0 || index + 1 == session_.plan.iterations;
  }

  uint32_t room() const {
    const Plan& plan = session_.plan;
    const uint32_t left = plan.iterations - posted_;
    const uint32_t queue = plan.send_depth - (posted_ - completed_);
    return std::min({left, queue, window()});
  }

  // A Send that finds no receive would end the connection: the peer's credit is counted.
  uint32_t window() const {
    const Plan& plan = session_.plan;
    if (plan.verb != Verb::kSend) return plan.send_depth;
    // More than was sent is what the size before left there.
    const uint32_t credit = session_.buffers.credit();
    const uint32_t in_flight = posted_ - (credit <= posted_ ? credit : 0);
    return plan.receive_depth - 1 - std::min(in_flight, plan.receive_depth - 1);
  }

  Session& session_;
  Bytes payload_;
  std::array<engine::SendWr, kBatch> batch_;
  uint32_t signal_every_;
  uint32_t posted_ = 0;
  uint32_t completed_ = 0;
};

// The end that takes Sends: gives the receives back, and tells the sender in thirds of the queue.
class Receiver {
 public:
  Receiver(Session& session, uint32_t size)
      : session_(session), size_(size), posted_(session.plan.receive_depth) {}

  bool is_done() const { return received_ == session_.plan.iterations; }

  Status<Error> take(std::span<const engine::Completion> completions) {
    const Plan& plan = session_.plan;
    uint32_t credit = 0;
    for (const engine::Completion& c : completions) {
      if (c.kind != engine::WorkKind::kReceive) continue;
      if (c.length != size_) {
        return fail_with("the peer sent a message of " + std::to_string(c.length) +
                         " bytes where " + std::to_string(size_) + " were expected");
      }
      ++received_;
      // The very counts at which perftest does it.
      if (received_ % plan.receive_depth % (plan.receive_depth / 3) == 0) credit = received_;
    }
    // As many receives in all as messages.
    const uint32_t posted =
        std::max(posted_, std::min(received_ + plan.receive_depth, plan.iterations));
    if (const auto done = session_.post_receives(posted - posted_, size_); !done) return done;
    posted_ = posted;
    return credit != 0 ? give(credit) : Status<Error>{};
  }

 private:
  Status<Error> give(uint32_t credit) {
    const Bytes word(reinterpret_cast<const uint8_t*>(&credit), sizeof credit);
    const engine::SendWr work{.op = engine::op::Write{.payload = {&word, 1},
                                                      .stag = session_.peer.stag,
                                                      .to = session_.peer.to},
                              .is_signalled = false,
                              .is_inline = true};
    if (const auto posted = session_.post(work); !posted) return posted;
    session_.data().flush();
    return {};
  }

  Session& session_;
  uint32_t size_;
  uint32_t received_ = 0;
  uint32_t posted_;
};

}  // namespace

Result<Duration, Error> send_stream(Session& session, uint32_t size) {
  Sender sender(session, size);
  std::array<engine::Completion, kBatch> completions;
  session.link.renew_patience();
  const Time start = base::now();
  while (!sender.is_done()) {
    if (const auto posted = sender.post(); !posted) return fail(posted.error());
    const auto n = session.poll(completions);
    if (!n) return fail(n.error());
    sender.completed(*n);
    if (sender.may_post() || sender.is_done()) continue;
    if (const auto rested = session.link.rest(); !rested) return fail(rested.error());
  }
  return base::now() - start;
}

Result<Duration, Error> receive_stream(Session& session, uint32_t size) {
  Receiver receiver(session, size);
  std::array<engine::Completion, kBatch> completions;
  session.link.renew_patience();
  std::optional<Time> start;
  while (!receiver.is_done()) {
    const auto n = session.wait(completions);
    if (!n) return fail(n.error());
    if (!start) start = base::now();
    const auto taken = receiver.take(std::span(completions).first(*n));
    if (!taken) return fail(taken.error());
  }
  return base::now() - *start;
}

}  // namespace ddpsock::perf
