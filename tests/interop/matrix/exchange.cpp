// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One cell, played out.
#include <gtest/gtest.h>

#include "tests/interop/matrix/matrix.h"

namespace ddpsock::interop {
namespace {

constexpr Time kStart{1'000'000'000};
constexpr int kMaxRounds = 2000;  // a split frame takes one an octet

std::unique_ptr<OurEnd> make_ours(const Ours& ours, int call, Time now) {
  if (const Calling* calling = std::get_if<Calling>(&ours)) {
    mpa::InitiatorConfig config = calling->config;
    if (call > 0) config.revision = MPA_REVISION_IETF;
    return std::make_unique<OurEnd>(config, kOurText, now);
  }
  const Answering& answering = std::get<Answering>(ours);
  return std::make_unique<OurEnd>(answering.config, answering.decision, kOurText, now);
}

bool is_starting_up(const OurEnd& ours) {
  return ours.state() != mpa::StartupState::kAgreed && ours.state() != mpa::StartupState::kFailed;
}

// Carries segments both ways until neither has more to say and no time-out is left.
void exchange(OurEnd& ours, Persona& peer) {
  Time now = kStart;
  bool has_closed = false;
  bool has_hung_up = false;
  peer.connected();
  for (int round = 0; round < kMaxRounds; ++round) {
    bool is_moving = false;
    for (Octets out = ours.output(now); !out.empty(); out = ours.output(now)) {
      peer.input(out);
      is_moving = true;
    }
    if (ours.wants_close() && !has_closed) {
      has_closed = is_moving = true;
      peer.ended();
    }
    for (const Octets& segment : peer.take_segments()) {
      if (!has_closed) ours.input(segment, now);
      is_moving = true;
    }
    if (peer.hangup() != Hangup::kNo && !has_hung_up) {
      has_hung_up = is_moving = true;
      const auto how =
          peer.hangup() == Hangup::kReset ? mpa::StreamEnd::kReset : mpa::StreamEnd::kFin;
      ours.end(how, now);
    }
    if (is_moving) continue;
    if (!is_starting_up(ours)) return;
    ASSERT_LT(ours.deadline(), kNever) << "it would wait for ever";
    now = ours.deadline();
    ours.on_deadline(now);
  }
  FAIL() << "the exchange does not end";
}

}  // namespace

Outcome run(const Cell& cell) {
  Outcome outcome;
  const Role role =
      std::holds_alternative<Calling>(cell.ours) ? Role::kResponder : Role::kInitiator;
  for (bool is_again = true; is_again && outcome.calls < 3;) {
    outcome.peer = cell.peer.make(role, cell.ulp, outcome.calls);
    outcome.ours = make_ours(cell.ours, outcome.calls, kStart);
    exchange(*outcome.ours, *outcome.peer);
    ++outcome.calls;
    is_again = outcome.ours->state() == mpa::StartupState::kFailed &&
               outcome.ours->failure().can_retry_with_revision_1;
  }
  return outcome;
}

}  // namespace ddpsock::interop
